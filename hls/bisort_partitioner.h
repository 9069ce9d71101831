// See bisort_partitioner.cpp.

#ifndef MILLRACE_BISORT_PARTITIONER_H
#define MILLRACE_BISORT_PARTITIONER_H

#include "bisort_types.h"

// The samples that the search looks at in its steps LEVEL and later: each step has a memory of its own.
template <int LEVEL>
struct levels_t {
    word_t cells[1 << LEVEL];
    levels_t<LEVEL + 1> deeper;
};

template <>
struct levels_t<INDEX_LOG2> {};

// An index on the chip. Sample 0 is apart: the search begins behind it.
struct index_t {
    levels_t<0> levels;
    word_t least;
    ap_uint<INDEX_LOG2 + 1> samples;
    ap_uint<INDEX_LOG2 + 1> clean;    // cells from the end that hold the largest word
};

void bisort_partitioner_on(
    index_t& index, bool load, bool upper, hls::stream<words_t>& samples, hls::stream<bound_t>& bounds,
    hls::stream<located_t>& located);
void bisort_partitioner(
    bool load, bool upper, hls::stream<words_t>& samples, hls::stream<bound_t>& bounds, hls::stream<located_t>& located);

#endif
