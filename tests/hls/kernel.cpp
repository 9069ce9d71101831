// Calls the kernel as XRT does: every argument is a buffer of its own.

#include "bisort_engine.h"

extern "C" __attribute__((visibility("default"))) void call_kernel(void* const buffers[10]) {
    auto at = [&](int k) { return static_cast<port_t*>(buffers[k]); };
    bisort_engine(at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7), at(8), at(9));
}
