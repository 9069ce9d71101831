// A simulated serial board: a verilated top level with a clock, and the host side of its serial line.
//
// The host side sends and receives bytes with DIVISOR clocks per bit, one start and one stop bit. `run` simulates cycles and returns for
// how many cycles the line has been idle, so that the caller can stop the clock of an idle board.

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "Vulx3s_top.h"
#include "verilated.h"

namespace {

class Board {
  public:
    Board() : context_(new VerilatedContext), top_(new Vulx3s_top(context_.get())) {
        top_->clk_25mhz = 0;
        top_->btn = 1;
        top_->ftdi_txd = 1;
        for (int i = 0; i < 600; i++) tick();
    }

    ~Board() { top_->final(); }

    void send(const uint8_t* data, uint32_t size) { out_.insert(out_.end(), data, data + size); }

    // Returns early when the board has responded, so that the next request need not wait.
    uint64_t run(uint64_t most) {
        for (uint64_t i = 0; i < most; i++) {
            tick();
            if (!in_.empty() && still_ > 2 * DIVISOR && out_left_ == 0 && out_.empty()) break;
        }
        return still_;
    }

    uint32_t receive(uint8_t* data, uint32_t size) {
        uint32_t count = 0;
        while (count < size && !in_.empty()) {
            data[count++] = in_.front();
            in_.pop_front();
        }
        return count;
    }

    uint64_t cycles() const { return cycles_; }

  private:
    void tick() {
        drive();
        top_->clk_25mhz = 1;
        top_->eval();
        top_->clk_25mhz = 0;
        top_->eval();
        listen();
        cycles_++;
    }

    // Host to board: ten bits, each for DIVISOR cycles.
    void drive() {
        if (out_left_ == 0) {
            if (out_.empty()) return;
            out_bits_ = uint32_t(out_.front()) << 1 | 1u << 9;
            out_.pop_front();
            out_left_ = 10 * DIVISOR;
        }
        top_->ftdi_txd = out_bits_ >> ((10 * DIVISOR - out_left_) / DIVISOR) & 1;
        if (--out_left_ == 0) top_->ftdi_txd = 1;
        still_ = 0;
    }

    // Board to host: bits are sampled in their middle.
    void listen() {
        still_++;
        if (in_left_ == 0) {
            if (top_->ftdi_rxd) return;
            in_left_ = 10 * DIVISOR;
            in_bits_ = 0;
        }
        still_ = 0;
        const uint32_t at = 10 * DIVISOR - in_left_;
        if (at % DIVISOR == DIVISOR / 2) in_bits_ |= uint32_t(top_->ftdi_rxd) << (at / DIVISOR);
        // The stop bit ends a little early, so that a start bit directly after it is detected.
        if (--in_left_ == DIVISOR / 4) {
            in_.push_back(uint8_t(in_bits_ >> 1));
            in_left_ = 0;
        }
    }

    std::unique_ptr<VerilatedContext> context_;
    std::unique_ptr<Vulx3s_top> top_;
    std::deque<uint8_t> out_, in_;
    uint32_t out_bits_ = 0, out_left_ = 0, in_bits_ = 0, in_left_ = 0;
    uint64_t cycles_ = 0, still_ = 0;
};

Board& of(void* board) { return *static_cast<Board*>(board); }

}  // namespace

#pragma GCC visibility push(default)
extern "C" {
void* sb_create() { return new Board; }
void sb_destroy(void* board) { delete static_cast<Board*>(board); }
void sb_send(void* board, const uint8_t* data, uint32_t size) { of(board).send(data, size); }
uint64_t sb_run(void* board, uint64_t most) { return of(board).run(most); }
uint32_t sb_receive(void* board, uint8_t* data, uint32_t size) { return of(board).receive(data, size); }
uint64_t sb_cycles(void* board) { return of(board).cycles(); }
}
#pragma GCC visibility pop
