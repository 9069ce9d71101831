// See bisort_engine.cpp.

#ifndef MILLRACE_BISORT_ENGINE_H
#define MILLRACE_BISORT_ENGINE_H

#include "bisort_abi.h"
#include "bisort_partitioner.h"
#include "bisort_types.h"

// The 32-bit words of a command's parameters: the registers from A_WORDS to those of the first slot, in register order.
constexpr int JOB_WORDS = (bisort_abi::REG_SLOT_B - bisort_abi::REG_A_WORDS) / 4 + 1;

// A command in memory: the opcode, then the parameters, in whole port beats.
constexpr int BEAT_WORDS = PORT_W / 32;
constexpr int COMMAND_BEATS = (1 + JOB_WORDS + BEAT_WORDS - 1) / BEAT_WORDS;
// A result in memory: the fields of done_t in their order, a word each.
constexpr int DONE_WORDS = 9;

// The result of a command.
struct done_t {
    ap_uint<8> code;           // bisort_abi::ERR_…
    ap_uint<32> merged, indexed, samples;
    ap_uint<32> low, high, low_partitions, high_partitions;
    ap_uint<32> loaded;        // samples of the on-chip index
};

// State that stays on the chip between commands: the index, one copy for lower and one for upper bounds, and its origin.
struct chip_t {
    index_t low, high;
    bool loaded;
    ap_uint<64> address;
    ap_uint<32> samples;
};

// The error of a command, which then starts nothing; bisort_abi::ERR_OK for a valid one.
ap_uint<8> bisort_engine_check(ap_uint<8> opcode, const ap_uint<32> job[JOB_WORDS]);

// One port per array; a command's pointers are byte offsets from their ports' pointers.
void bisort_engine_on(
    chip_t& chip, ap_uint<8> opcode, const ap_uint<32> job[JOB_WORDS], const port_t* a_words, const port_t* a_ids,
    const port_t* b_words, const port_t* b_ids, const port_t* index_in, port_t* out_words, port_t* out_ids, port_t* index_out,
    done_t& done);
void bisort_engine(
    const port_t* command, port_t* result, const port_t* a_words, const port_t* a_ids, const port_t* b_words,
    const port_t* b_ids, const port_t* index_in, port_t* out_words, port_t* out_ids, port_t* index_out);

#endif
