// Replaces the vendor's hls_stream.h: a FIFO with DEPTH entries between two processes of a dataflow region.
//
// In the vendor's C simulation processes run one after the other and streams are unbounded. Here a read of an empty stream and a write to a
// full one make the process wait (csim.h), as in hardware, so the simulation detects a depth that is too small for the dataflow.
// Functions take `hls::stream<T>&`; a stream itself is declared with its depth, a power of two.

#ifndef MILLRACE_SHIM_HLS_STREAM_H
#define MILLRACE_SHIM_HLS_STREAM_H

#include "csim.h"

#define MILLRACE_CSIM

namespace hls {

template <typename T, int DEPTH = 0>
class stream;

template <typename T>
class stream<T, 0> {
  public:
    stream(const stream&) = delete;
    stream& operator=(const stream&) = delete;

    // Inlined early, so that a value is constructed in place and not copied.
    [[gnu::always_inline]] T read() {
        if (__builtin_expect(empty(), 0)) csim::wait_while([this] { return empty(); });
        return places_[read_++ & last_];
    }

    [[gnu::always_inline]] void write(const T& value) {
        if (__builtin_expect(full(), 0)) csim::wait_while([this] { return full(); });
        places_[written_++ & last_] = value;
    }

    bool empty() const { return written_ == read_; }
    bool full() const { return written_ - read_ > last_; }

  protected:
    stream(T* places, unsigned depth) : places_(places), last_(depth - 1) {}

  private:
    T* places_;
    unsigned last_;
    unsigned read_ = 0, written_ = 0;
};

template <typename T, int DEPTH>
class stream : public stream<T, 0> {
    static_assert(DEPTH > 0 && (DEPTH & (DEPTH - 1)) == 0, "the depth of a stream is a power of two");

  public:
    stream() : stream<T, 0>(places_, DEPTH) {}

  private:
    T places_[DEPTH];
};

}  // namespace hls

#endif
