// Produces the lower and upper bounds of a batch as two ascending streams (PanJoin, IV, "boundary generator").
//
// Equivalent to hw/rtl/bisort_boundary.sv. Host bounds (is_band = false): low_in and high_in are passed through. Band: low_in carries keys;
// each key produces the bounds key - below, but not less than `least`, and key + above, but not more than `most`; high_in is not read.
// One bound of each stream per iteration. Limits: both host streams have the same length; least <= most.

#include "bisort_boundary.h"

void bisort_boundary(
    bool is_band, band_t band, hls::stream<bound_t>& low_in, hls::stream<bound_t>& high_in, hls::stream<bound_t>& low,
    hls::stream<bound_t>& high) {
#pragma HLS INTERFACE s_axilite port=is_band
#pragma HLS INTERFACE s_axilite port=band
#pragma HLS INTERFACE axis port=low_in
#pragma HLS INTERFACE axis port=high_in
#pragma HLS INTERFACE axis port=low
#pragma HLS INTERFACE axis port=high
#pragma HLS INTERFACE s_axilite port=return
    bool last = false;
bounds:
    while (!last) {
#pragma HLS PIPELINE II=1
        bound_t below = low_in.read(), above = below;
        if (is_band) {
            const word_t key = below.lane[0];
            const word_t less = key - band.below, more = key + band.above;
            // A difference above the key, or a sum below it, has overflowed the word.
            below.lane[0] = less > key || less < band.least ? band.least : less;
            above.lane[0] = more < key || more > band.most ? band.most : more;
        } else {
            above = high_in.read();
        }
        last = below.last;
        low.write(below);
        high.write(above);
    }
}
