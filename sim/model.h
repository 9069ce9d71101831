// The C ABI of the simulated engine: one verilated `bisort_engine`, its memory, and both clocked together.
//
// A library holds one configuration; any number of instances may live in a process, each used by one thread at a time.
// Functions that can fail return a code below zero and leave a text for `mr_error`. Addresses are those the engine sees.

#ifndef MILLRACE_SIM_MODEL_H
#define MILLRACE_SIM_MODEL_H

#include <stdint.h>

#pragma GCC visibility push(default)
extern "C" {

// The memory and how it behaves. One tick is a clock cycle of the engine.
typedef struct {
    uint8_t* cells;            // the caller's, so that engines can share one memory and hosts look at it directly
    uint64_t bytes;            // size; addresses 0 to bytes - 1 exist, others answer with an error
    uint32_t latency;          // cycles from the end of a beat's transfer in the memory to the port
    uint32_t channels;         // independent channels, a power of two; 0: no shared channels, each port goes at full rate
    uint32_t interleave;       // bytes of neighbouring addresses in one channel, a power of two
    uint32_t backlog;          // cycles of transfers a channel takes ahead before it makes ports wait
    double bytes_per_cycle;    // of one channel, reads and writes together
} mr_memory;

enum { MR_DONE = 0, MR_MORE = 1, MR_HANG = -1, MR_PROTOCOL = -2 };

void* mr_create(const mr_memory* memory);
void mr_destroy(void* model);
const char* mr_error(void* model);

// AXI4-Lite transactions, one after the other. `pairs`: offset and value, `count` times.
int mr_reg_write(void* model, const uint32_t* pairs, uint32_t count);
int mr_reg_read(void* model, const uint32_t* offsets, uint32_t* values, uint32_t count);

// Ticks until the interrupt is high, at most `most` times (MR_MORE then: call again). MR_HANG after `idle` cycles, fewer than
// `most`, in which no port moved anything.
int mr_run(void* model, uint64_t idle, uint64_t most);

// Cycles since reset, and those in which channel 0, 1, ... was busy (0 without channels).
uint64_t mr_cycles(void* model);
uint64_t mr_busy(void* model, uint32_t channel);
}
#pragma GCC visibility pop

#endif
