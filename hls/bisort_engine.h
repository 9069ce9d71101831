// See bisort_engine.cpp.

#ifndef MILLRACE_BISORT_ENGINE_H
#define MILLRACE_BISORT_ENGINE_H

#include "bisort_abi.h"
#include "bisort_partitioner.h"
#include "bisort_types.h"

// Words of 32 bits of a command's parameters: the registers from A_WORDS to the first slot's, as they lie there.
constexpr int JOB_WORDS = (bisort_abi::REG_SLOT_B - bisort_abi::REG_A_WORDS) / 4 + 1;

// What a command has done.
struct done_t {
    ap_uint<8> code;           // bisort_abi::ERR_…
    ap_uint<32> merged, indexed, samples;
    ap_uint<32> low, high, low_partitions, high_partitions;
    ap_uint<32> loaded;        // samples of the on-chip index
};

// What stays on the chip between commands: the index, once for lower and once for upper bounds, and whose it is.
struct chip_t {
    index_t low, high;
    bool loaded;
    ap_uint<64> address;
    ap_uint<32> samples;
};

// What is wrong with a command, which then starts nothing; bisort_abi::ERR_OK if nothing is.
ap_uint<8> bisort_engine_check(ap_uint<8> opcode, const ap_uint<32> job[JOB_WORDS]);

// Pointers are to the same memory, through as many ports as there are arrays at a time.
void bisort_engine_on(
    chip_t& chip, ap_uint<8> opcode, const ap_uint<32> job[JOB_WORDS], const port_t* a_words, const port_t* a_ids,
    const port_t* b_words, const port_t* b_ids, const port_t* index_in, port_t* out_words, port_t* out_ids, port_t* index_out,
    done_t& done);
void bisort_engine(
    ap_uint<8> opcode, const ap_uint<32> job[JOB_WORDS], const port_t* a_words, const port_t* a_ids, const port_t* b_words,
    const port_t* b_ids, const port_t* index_in, port_t* out_words, port_t* out_ids, port_t* index_out, done_t& done);

#endif
