// Merges two sorted streams of tuples into one, W tuples per iteration, in the total order of {key, id} (PanJoin, IV, Figure 8).
//
// Equivalent to hw/rtl/bisort_merger.sv, which follows FLiMS: tuple j of an input waits in lane j mod W. Lane i of a is compared with lane
// W-1-i of b; the W winners are the W smallest remaining tuples, a bitonic sequence that log2 W stages of compare-and-swap sort. An
// iteration takes k tuples from a and W-k from b, so the pairing stays correct while both inputs rotate.
//
// The next state needs one comparison and one selection, which makes one iteration per cycle (II=1) possible. Two beats of each input
// wait behind the heads, because the W heads may be in two beats and their successors in a third.

#include "bisort_merger.h"

namespace {

// An entry of a lane: a tuple, or none, which is larger than every tuple.
struct entry_t {
    word_t key;
    row_t id;
    bool none;
};

struct input_t {
    entry_t head[W];
    tuples_t next, after;    // the beats behind the one that contains the oldest head
    count_t oldest;          // its lane
    bool ended;              // no more beats follow
};

bool goes_first(const entry_t& a, const entry_t& b) {
#pragma HLS INLINE
    const bool first = a.key < b.key || (a.key == b.key && a.id <= b.id);
    return b.none || (!a.none && first);
}

entry_t entry(const tuples_t& beat, int lane) {
#pragma HLS INLINE
    return {beat.key[lane], beat.id[lane], lane >= int(beat.count)};
}

void fetch(hls::stream<tuples_t>& in, input_t& input, tuples_t& beat) {
#pragma HLS INLINE
    if (input.ended) {
        beat.count = 0;
    } else {
        beat = in.read();
        input.ended = beat.last;
    }
}

void fill(hls::stream<tuples_t>& in, input_t& input) {
#pragma HLS INLINE
    tuples_t first;
#pragma HLS ARRAY_PARTITION variable=first.key complete
#pragma HLS ARRAY_PARTITION variable=first.id complete
    input.ended = false;
    input.oldest = 0;
    fetch(in, input, first);
    fetch(in, input, input.next);
    fetch(in, input, input.after);
    for (int i = 0; i < W; i++) {
#pragma HLS UNROLL
        input.head[i] = entry(first, i);
    }
}

// Removes the heads of some lanes, the oldest ones.
void take(hls::stream<tuples_t>& in, input_t& input, const bool taken[W]) {
#pragma HLS INLINE
    count_t count = 0;
    for (int i = 0; i < W; i++) {
#pragma HLS UNROLL
        const bool near = i >= int(input.oldest);
        const entry_t behind = {
            near ? input.next.key[i] : input.after.key[i],
            near ? input.next.id[i] : input.after.id[i],
            i >= int(near ? input.next.count : input.after.count),
        };
        if (taken[i]) input.head[i] = behind;
        count += taken[i];
    }
    const count_t oldest = input.oldest + count;
    if (oldest >= W) {
        input.oldest = oldest - W;
        input.next = input.after;
        fetch(in, input, input.after);
    } else {
        input.oldest = oldest;
    }
}

bool is_empty(const input_t& input) {
#pragma HLS INLINE
    bool empty = true;
    for (int i = 0; i < W; i++) {
#pragma HLS UNROLL
        empty = empty && input.head[i].none;
    }
    return empty;
}

void sort(entry_t entries[W]) {
#pragma HLS INLINE
    for (int distance = W / 2; distance > 0; distance /= 2) {
#pragma HLS UNROLL
        for (int i = 0; i < W; i++) {
#pragma HLS UNROLL
            if ((i & distance) == 0) {
                const entry_t low = entries[i], high = entries[i + distance];
                const bool keep = goes_first(low, high);
                entries[i] = keep ? low : high;
                entries[i + distance] = keep ? high : low;
            }
        }
    }
}

}  // namespace

void bisort_merger(hls::stream<tuples_t>& a, hls::stream<tuples_t>& b, hls::stream<tuples_t>& out, ap_uint<32>& rows) {
#pragma HLS INTERFACE axis port=a
#pragma HLS INTERFACE axis port=b
#pragma HLS INTERFACE axis port=out
#pragma HLS INTERFACE s_axilite port=rows
#pragma HLS INTERFACE s_axilite port=return
    input_t from_a, from_b;
#pragma HLS ARRAY_PARTITION variable=from_a.head complete
#pragma HLS ARRAY_PARTITION variable=from_a.next.key complete
#pragma HLS ARRAY_PARTITION variable=from_a.next.id complete
#pragma HLS ARRAY_PARTITION variable=from_a.after.key complete
#pragma HLS ARRAY_PARTITION variable=from_a.after.id complete
#pragma HLS ARRAY_PARTITION variable=from_b.head complete
#pragma HLS ARRAY_PARTITION variable=from_b.next.key complete
#pragma HLS ARRAY_PARTITION variable=from_b.next.id complete
#pragma HLS ARRAY_PARTITION variable=from_b.after.key complete
#pragma HLS ARRAY_PARTITION variable=from_b.after.id complete
    ap_uint<32> given = 0;
    fill(a, from_a);
    fill(b, from_b);
    bool last = false;
merge:
    while (!last) {
#pragma HLS PIPELINE II=1
        entry_t winner[W];
        bool a_wins[W], b_wins[W];
#pragma HLS ARRAY_PARTITION variable=winner complete
#pragma HLS ARRAY_PARTITION variable=a_wins complete
#pragma HLS ARRAY_PARTITION variable=b_wins complete
        for (int i = 0; i < W; i++) {
#pragma HLS UNROLL
            a_wins[i] = goes_first(from_a.head[i], from_b.head[W - 1 - i]);
            b_wins[W - 1 - i] = !a_wins[i];
            winner[i] = a_wins[i] ? from_a.head[i] : from_b.head[W - 1 - i];
        }
        take(a, from_a, a_wins);
        take(b, from_b, b_wins);
        last = is_empty(from_a) && is_empty(from_b);
        sort(winner);
        tuples_t beat;
#pragma HLS ARRAY_PARTITION variable=beat.key complete
#pragma HLS ARRAY_PARTITION variable=beat.id complete
        beat.count = 0;
        beat.last = last;
        for (int i = 0; i < W; i++) {
#pragma HLS UNROLL
            beat.key[i] = winner[i].key;
            beat.id[i] = winner[i].id;
            beat.count += !winner[i].none;
        }
        given += beat.count;
        out.write(beat);
    }
    rows = given;
}
