// Converts between memory ports and streams: arrays of words or 32-bit numbers, of any length, starting at any element.
//
// Reading uses two processes: `load` only bursts full port beats, `unpack` cuts them into beats of LANES elements with the first element in
// lane 0. Writing is the reverse: `pack`, then `store`. Each handles one beat per iteration, at the port or at the lanes.
//
// Addresses are byte offsets into the buffer that a port's pointer names.
//
// Limit: a port writes full beats. A partial beat at an end of an array is therefore read, modified and written back, outside the pipelined
// loop, so two arrays that are written at the same time must not share a port beat (64 bytes). The RTL has byte strobes and no such limit.

#ifndef MILLRACE_BISORT_MEMORY_H
#define MILLRACE_BISORT_MEMORY_H

#include "bisort_types.h"

constexpr int PORT_BYTES_LOG2 = 6;
static_assert(PORT_W == 8 << PORT_BYTES_LOG2, "a port beat has 2**PORT_BYTES_LOG2 bytes");

// Elements of type T: their bits, and their number per port beat.
template <typename T>
struct element_t;

template <>
struct element_t<ap_uint<32>> {
    static constexpr int BITS = 32, LOG2 = 4, PER_BEAT = 1 << LOG2;
};

template <>
struct element_t<ap_uint<64>> {
    static constexpr int BITS = 64, LOG2 = 3, PER_BEAT = 1 << LOG2;
};

// A transfer of `count` elements, starting at element `first` of a port beat; `last`: the last transfer of a process.
struct transfer_t {
    ap_uint<4> first;
    ap_uint<32> count;
    bool last;
};

// A port beat to be written: elements `begin` to `end` - 1 are valid.
struct chunk_t {
    port_t data;
    ap_uint<5> begin, end;
};

template <typename T>
ap_uint<4> first_of(ap_uint<64> address) {
#pragma HLS INLINE
    const ap_uint<PORT_BYTES_LOG2> within = address;
    return within >> (PORT_BYTES_LOG2 - element_t<T>::LOG2);
}

template <typename T>
ap_uint<32> beats_of(ap_uint<4> first, ap_uint<32> count) {
#pragma HLS INLINE
    const ap_uint<33> places = first + count + (element_t<T>::PER_BEAT - 1);
    return count == 0 ? ap_uint<32>(0) : ap_uint<32>(places >> element_t<T>::LOG2);
}

// Reads one array in bursts.
template <typename T>
void burst(
    const port_t* memory, ap_uint<64> address, ap_uint<32> count, bool last, hls::stream<transfer_t>& transfers,
    hls::stream<port_t>& beats) {
#pragma HLS INLINE
    const ap_uint<4> first = first_of<T>(address);
    const ap_uint<58> from = address >> PORT_BYTES_LOG2;
    const ap_uint<32> length = beats_of<T>(first, count);
    transfers.write({first, count, last});
burst:
    for (ap_uint<32> i = 0; i < length; i += 1) {
#pragma HLS PIPELINE II=1
        beats.write(memory[from + i]);
    }
}

template <typename T>
void load(
    const port_t* memory, ap_uint<64> address, ap_uint<32> count, hls::stream<transfer_t>& transfers,
    hls::stream<port_t>& beats) {
    burst<T>(memory, address, count, true, transfers, beats);
}

// Reads the words of the requested partitions of a run of `size` words.
inline void load_partitions(
    const port_t* memory, ap_uint<64> address, ap_uint<32> size, ap_uint<5> step_log2, hls::stream<request_t>& requests,
    hls::stream<transfer_t>& transfers, hls::stream<port_t>& beats) {
    constexpr int BYTES_LOG2 = PORT_BYTES_LOG2 - element_t<word_t>::LOG2;
    const ap_uint<32> step = ap_uint<32>(1) << step_log2;
    bool more = true;
partitions:
    while (more) {
        const request_t request = requests.read();
        more = !request.last;
        if (more) {
            const ap_uint<32> first = ap_uint<32>(request.partition) << step_log2;
            const ap_uint<32> left = size - first;
            const ap_uint<64> bytes = ap_uint<64>(first) << BYTES_LOG2;
            burst<word_t>(memory, address + bytes, left < step ? left : step, false, transfers, beats);
        }
    }
    transfers.write({0, 0, true});
}

// Each transfer becomes a separate stream, an empty one an empty beat; `ends`: the last transfer is only an end mark.
template <typename T, int LANES>
void unpack(bool ends, hls::stream<transfer_t>& transfers, hls::stream<port_t>& beats, hls::stream<beat_t<T, LANES>>& out) {
    constexpr int PER_BEAT = element_t<T>::PER_BEAT, BITS = element_t<T>::BITS;
    bool more = true;
transfers:
    while (more) {
        const transfer_t transfer = transfers.read();
        more = !transfer.last;
        ap_uint<32> left = transfer.count;
        ap_uint<5> at = transfer.first;    // index of the next element; PER_BEAT: the beat is consumed
        port_t now = port_t();
        if (left != 0) now = beats.read();
        bool last = ends && transfer.last;
    lanes:
        while (!last) {
#pragma HLS PIPELINE II=1
            const ap_uint<5> count = left < LANES ? ap_uint<5>(left) : ap_uint<5>(LANES);
            const ap_uint<6> end = at + count;
            const bool over = end > PER_BEAT;
            beat_t<T, LANES> beat;
#pragma HLS ARRAY_PARTITION variable=beat.lane complete
            for (int i = 0; i < LANES; i++) {
#pragma HLS UNROLL
                const int low = ((at + i) & (PER_BEAT - 1)) * BITS;
                beat.lane[i] = T(now.range(low + BITS - 1, low));
            }
            if (over) {
                now = beats.read();
                for (int i = 0; i < LANES; i++) {
#pragma HLS UNROLL
                    const int low = ((at + i) & (PER_BEAT - 1)) * BITS;
                    if (at + i >= PER_BEAT) beat.lane[i] = T(now.range(low + BITS - 1, low));
                }
            }
            left -= count;
            beat.count = count;
            beat.last = last = left == 0;
            out.write(beat);
            at = over ? ap_uint<5>(end - PER_BEAT) : ap_uint<5>(end);
        }
    }
}

// Packs elements into port beats, starting at element `first` of the first one. If not `wanted`, elements are discarded.
template <typename T, int LANES>
void pack(bool wanted, ap_uint<64> address, hls::stream<beat_t<T, LANES>>& in, hls::stream<chunk_t>& chunks) {
    constexpr int PER_BEAT = element_t<T>::PER_BEAT, BITS = element_t<T>::BITS;
    chunk_t now = chunk_t();
    now.begin = now.end = first_of<T>(address);
    bool more = true;
pack:
    while (more) {
#pragma HLS PIPELINE II=1
        const beat_t<T, LANES> beat = in.read();
#pragma HLS ARRAY_PARTITION variable=beat.lane complete
        const ap_uint<6> end = now.end + beat.count;
        const bool over = end > PER_BEAT;
        const ap_uint<5> at = now.end;
        for (int i = 0; i < LANES; i++) {
#pragma HLS UNROLL
            const int low = ((at + i) & (PER_BEAT - 1)) * BITS;
            if (at + i < PER_BEAT && i < int(beat.count)) now.data.range(low + BITS - 1, low) = beat.lane[i];
        }
        more = !beat.last;
        if (over) {
            now.end = PER_BEAT;
            if (wanted) chunks.write(now);
            for (int i = 0; i < LANES; i++) {
#pragma HLS UNROLL
                const int low = ((at + i) & (PER_BEAT - 1)) * BITS;
                if (at + i >= PER_BEAT && i < int(beat.count)) now.data.range(low + BITS - 1, low) = beat.lane[i];
            }
            now.begin = 0;
        }
        now.end = over ? ap_uint<5>(end - PER_BEAT) : ap_uint<5>(end);
    }
    if (wanted) chunks.write(now);
}

// Writes the elements of a beat that are valid, and leaves its others as they are.
template <typename T>
void store_part(port_t* memory, ap_uint<58> at, const chunk_t& chunk) {
    constexpr int PER_BEAT = element_t<T>::PER_BEAT, BITS = element_t<T>::BITS;
    port_t changed = memory[at];
    for (int i = 0; i < PER_BEAT; i++) {
#pragma HLS UNROLL
        const int low = i * BITS;
        if (i >= int(chunk.begin) && i < int(chunk.end))
            changed.range(low + BITS - 1, low) = chunk.data.range(low + BITS - 1, low);
    }
    memory[at] = changed;
}

// Writes `count` elements to memory: a partial beat at either end is read, modified and written, the full beats between are one burst.
template <typename T>
void store(port_t* memory, ap_uint<64> address, ap_uint<32> count, hls::stream<chunk_t>& chunks) {
    constexpr int PER_BEAT = element_t<T>::PER_BEAT;
    const ap_uint<4> first = first_of<T>(address);
    const ap_uint<58> from = address >> PORT_BYTES_LOG2;
    const ap_uint<32> length = beats_of<T>(first, count);
    const ap_uint<33> end = first + ap_uint<33>(count);
    const bool uneven = (end & (PER_BEAT - 1)) != 0;
    const bool head = length != 0 && (first != 0 || (length == 1 && uneven));
    const bool tail = length > 1 && uneven;
    const ap_uint<32> full = length - head - tail;
    if (head) store_part<T>(memory, from, chunks.read());
store:
    for (ap_uint<32> i = 0; i < full; i += 1) {
#pragma HLS PIPELINE II=1
        memory[from + head + i] = chunks.read().data;
    }
    if (tail) store_part<T>(memory, from + length - 1, chunks.read());
}

#endif
