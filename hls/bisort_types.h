// The types of the streams between the units of the BI-Sort engine, and the compile-time parameters (PanJoin, IV).
//
// A stream is a sequence of beats of W lanes; all beats but the last are full, and an empty stream is one empty beat. Values occupy lanes 0
// to count - 1. Tuples ascend by {key, id}. The units correspond one to one to those of hw/rtl and have the same names. In Vitis HLS a
// process of a dataflow region is a plain function call; in our C simulation (shim/) it runs concurrently with the others.

#ifndef MILLRACE_BISORT_TYPES_H
#define MILLRACE_BISORT_TYPES_H

#include <ap_int.h>
#include <hls_stream.h>

// Bits of a key: 32 or 64.
#ifndef BISORT_KEY_W
#define BISORT_KEY_W 64
#endif
// Tuples merged, and words scanned, per cycle: 1, 2, 4 or 8.
#ifndef BISORT_W
#define BISORT_W 4
#endif
// Base-2 logarithm of the maximum number of samples of an on-chip index: 4 to 20.
#ifndef BISORT_INDEX_LOG2
#define BISORT_INDEX_LOG2 16
#endif

constexpr int KEY_W = BISORT_KEY_W;
constexpr int ID_W = 32;
constexpr int W = BISORT_W;
constexpr int INDEX_LOG2 = BISORT_INDEX_LOG2;
// Bits of a memory port: one port serves one array, so a beat contains W words or more.
constexpr int PORT_W = 512;
// The depth of a stream that covers the memory's latency, and of one between two units. Hardware needs less; C simulation is faster the
// longer a process can run without a switch.
constexpr int FAR = 256;
constexpr int NEAR = 128;

static_assert(KEY_W == 32 || KEY_W == 64, "BISORT_KEY_W must be 32 or 64");
static_assert(W == 1 || W == 2 || W == 4 || W == 8, "BISORT_W must be 1, 2, 4 or 8");
static_assert(INDEX_LOG2 >= 4 && INDEX_LOG2 <= 20, "BISORT_INDEX_LOG2 must be 4 to 20");

typedef ap_uint<KEY_W> word_t;
typedef ap_uint<ID_W> row_t;
typedef ap_uint<PORT_W> port_t;
// Wide enough for the largest index.
typedef ap_uint<20> partition_t;
typedef ap_uint<4> count_t;

// A beat of values of one kind.
template <typename T, int LANES>
struct beat_t {
    T lane[LANES];
    count_t count;
    bool last;
};

typedef beat_t<word_t, W> words_t;
typedef beat_t<row_t, W> rows_t;
typedef beat_t<word_t, 1> bound_t;
typedef beat_t<word_t, 1> sample_t;
typedef beat_t<row_t, 1> position_t;

// A beat of tuples.
struct tuples_t {
    word_t key[W];
    row_t id[W];
    count_t count;
    bool last;
};

// A bound and the partition that contains its position; `none`: before all partitions. `fresh`, set by the prober: the previous bound is in
// another partition.
struct located_t {
    word_t bound;
    partition_t partition;
    bool none;
    bool keep;
    bool last;
    bool fresh;
};

// A request for the words of a partition. The last request of a stream is empty and only marks the end.
struct request_t {
    partition_t partition;
    bool last;
};

#ifdef MILLRACE_CSIM
#define DATAFLOW_BEGINS csim::Region region;
#define PROCESS(...) region.start([&] { __VA_ARGS__; })
#else
#define DATAFLOW_BEGINS
#define PROCESS(...) __VA_ARGS__
#endif

#endif
