// The C ABI of the simulated engine: one verilated `bisort_engine` and its memory, clocked together.
//
// A library contains one configuration. A process may have any number of instances, each used by one thread at a time.
// Functions that can fail return a negative code and set the text of `mr_error`. Addresses are those of the engine.

#ifndef MILLRACE_SIM_MODEL_H
#define MILLRACE_SIM_MODEL_H

#include <stdint.h>

#pragma GCC visibility push(default)
extern "C" {

// The memory and its timing. One tick is a clock cycle of the engine.
typedef struct {
    uint8_t* cells;            // owned by the caller, so that engines can share a memory and hosts can access it directly
    uint64_t bytes;            // size; addresses 0 to bytes - 1 exist, others return an error response
    uint32_t latency;          // cycles from the end of a beat's transfer in the memory to the port
    uint32_t channels;         // independent channels, a power of two; 0: no shared channels, each port runs at full rate
    uint32_t interleave;       // bytes of consecutive addresses in one channel, a power of two
    uint32_t backlog;          // cycles of queued transfers after which a channel makes ports wait
    double bytes_per_cycle;    // bandwidth of one channel, reads and writes together
    uint32_t shuffle;          // 0, or the seed of a random order in which ids are answered
} mr_memory;

enum { MR_DONE = 0, MR_MORE = 1, MR_HANG = -1, MR_PROTOCOL = -2 };

void* mr_create(const mr_memory* memory);
void mr_destroy(void* model);
const char* mr_error(void* model);

// AXI4-Lite transactions, in order. `pairs`: offset and value, `count` times.
int mr_reg_write(void* model, const uint32_t* pairs, uint32_t count);
int mr_reg_read(void* model, const uint32_t* offsets, uint32_t* values, uint32_t count);

// Ticks until the interrupt is high, at most `most` times (returns MR_MORE then: call again). Returns MR_HANG after `idle` cycles
// (fewer than `most`) without a transfer at any port.
int mr_run(void* model, uint64_t idle, uint64_t most);

// Cycles since reset, and the busy cycles of a channel (0 without channels).
uint64_t mr_cycles(void* model);
uint64_t mr_busy(void* model, uint32_t channel);
}
#pragma GCC visibility pop

#endif
