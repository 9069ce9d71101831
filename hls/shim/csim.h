// Runs the processes of a dataflow region concurrently on one thread, so that streams can be as short as in hardware.
//
// Each process has its own stack and runs until it must wait; then the next one runs. If all of them wait, the dataflow is deadlocked, and
// `Standstill` is thrown at the end of the outermost region. Regions may be nested in processes.
// Limits: a process uses at most STACK bytes, throws nothing, and owns nothing on the heap.

#ifndef MILLRACE_SHIM_CSIM_H
#define MILLRACE_SHIM_CSIM_H

#include <cstddef>
#include <functional>
#include <stdexcept>
#include <utility>

namespace csim {

constexpr std::size_t STACK = 128 * 1024;

class Standstill : public std::runtime_error {
  public:
    Standstill() : std::runtime_error("the dataflow stands still: each of its processes waits for another") {}
};

// The processes of this thread.
struct Ring;
Ring& here();
// The running process must wait: switches to the next one.
void wait(Ring& ring);
// The process continued after a wait.
void moved(Ring& ring);

template <typename Condition>
__attribute__((noinline)) void wait_while(Condition condition) {
    Ring& ring = here();
    while (condition()) wait(ring);
    moved(ring);
}

// Switches to the other processes although this one could continue.
inline void pause() {
    Ring& ring = here();
    moved(ring);
    wait(ring);
    moved(ring);
}

// Processes that start together; the region ends when all of them have ended.
class Region {
  public:
    Region() = default;
    Region(const Region&) = delete;
    Region& operator=(const Region&) = delete;
    ~Region() noexcept(false);

    void start(std::function<void()> work);
    void ended() { under_way_--; }

  private:
    unsigned under_way_ = 0;
};

}  // namespace csim

#endif
