// See bisort_partitioner.cpp.

#ifndef MILLRACE_BISORT_PARTITIONER_H
#define MILLRACE_BISORT_PARTITIONER_H

#include "bisort_types.h"

// The samples that the search compares in steps LEVEL and later: each step has its own memory.
template <int LEVEL>
struct levels_t {
    word_t cells[1 << LEVEL];
    levels_t<LEVEL + 1> deeper;
};

template <>
struct levels_t<INDEX_LOG2> {};

// An on-chip index. Sample 0 is stored separately: the search begins after it.
struct index_t {
    levels_t<0> levels;
    word_t least;
    ap_uint<INDEX_LOG2 + 1> samples;
    ap_uint<INDEX_LOG2 + 1> clean;    // cells at the end that contain the largest word
};

void bisort_partitioner_on(
    index_t& index, bool load, bool upper, hls::stream<words_t>& samples, hls::stream<bound_t>& bounds,
    hls::stream<located_t>& located);
void bisort_partitioner(
    bool load, bool upper, hls::stream<words_t>& samples, hls::stream<bound_t>& bounds, hls::stream<located_t>& located);

#endif
