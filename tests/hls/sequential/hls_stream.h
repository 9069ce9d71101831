// Streams as in the vendor's C simulation: unbounded, and processes run one after the other, as they are called.
//
// Used instead of hls/shim/hls_stream.h to test that the sources also work this way. A read of an empty stream ends the test.

#ifndef MILLRACE_SEQUENTIAL_HLS_STREAM_H
#define MILLRACE_SEQUENTIAL_HLS_STREAM_H

#include <cstdlib>
#include <deque>

#include "csim.h"

namespace hls {

template <typename T, int DEPTH = 0>
class stream;

template <typename T>
class stream<T, 0> {
  public:
    T read() {
        if (held_.empty()) std::abort();
        const T value = held_.front();
        held_.pop_front();
        return value;
    }

    void write(const T& value) { held_.push_back(value); }

  private:
    std::deque<T> held_;
};

template <typename T, int DEPTH>
class stream : public stream<T, 0> {};

}  // namespace hls

#endif
