// See bisort_boundary.cpp.

#ifndef MILLRACE_BISORT_BOUNDARY_H
#define MILLRACE_BISORT_BOUNDARY_H

#include "bisort_types.h"

// The extent of a band below and above a key, and the limits of its bounds.
struct band_t {
    word_t below, above, least, most;
};

void bisort_boundary(
    bool is_band, band_t band, hls::stream<bound_t>& low_in, hls::stream<bound_t>& high_in, hls::stream<bound_t>& low,
    hls::stream<bound_t>& high);

#endif
