// The simulated engine: drives a verilated `bisort_engine` and serves its memory ports.
//
// The memory model. Each port accepts one address, one read beat and one write beat per cycle. `ideal` only adds a latency. With
// channels, each beat also occupies the channel of its address for bytes / bytes_per_cycle, first come, first served, reads and
// writes alike. A channel with `backlog` cycles of queued work makes the ports wait. Ports are served round-robin, starting at a
// different port each cycle. Not modelled: rows, banks, refresh, turn-around between reads and writes.
//
// With `shuffle`, a random one of the ids that could be answered is answered, or none, beat by beat: AXI4 orders only the answers of one
// id. Otherwise answers come in the order of the requests, which a real interconnect need not keep.
//
// AXI4 rules that are checked on every port: an offered transfer stays unchanged until it is accepted; bursts are INCR of full,
// aligned beats within 4 KiB; write data end where the address says. A violation ends the run with MR_PROTOCOL.

#include "model.h"

#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "Vbisort_engine.h"
#include "verilated.h"

namespace {

constexpr uint32_t PORTS = CLUSTERS;
constexpr uint32_t BEAT = DATA_W / 8;
constexpr uint32_t SIZE = __builtin_ctz(BEAT);
constexpr uint32_t ID_BITS = 8;
constexpr uint32_t QUEUED = 64;      // addresses that a port accepts ahead
constexpr uint32_t LITE_PATIENCE = 1000;
constexpr size_t NONE = SIZE_MAX;

// Ports of the top module are integers or arrays of words, depending on their width; all are little-endian bytes in memory.
template <typename Port>
uint8_t* bytes_of(Port& port) {
    return reinterpret_cast<uint8_t*>(&port);
}

template <typename Port>
bool bit(Port& port, uint32_t k) {
    return bytes_of(port)[k / 8] >> (k % 8) & 1;
}

template <typename Port>
void set_bit(Port& port, uint32_t k, bool value) {
    uint8_t& byte = bytes_of(port)[k / 8];
    byte = static_cast<uint8_t>((byte & ~(1u << (k % 8))) | (unsigned(value) << (k % 8)));
}

template <typename Value, typename Port>
Value field(Port& port, uint32_t k) {
    Value value;
    memcpy(&value, bytes_of(port) + k * sizeof(Value), sizeof(Value));
    return value;
}

template <typename Port>
uint32_t bits(Port& port, uint32_t low, uint32_t width) {
    uint32_t value = 0;
    for (uint32_t i = 0; i < width; i++) value |= uint32_t(bit(port, low + i)) << i;
    return value;
}

struct Beat {
    uint64_t address;
    double ready;
    uint8_t id;
    bool last;
};

struct Burst {
    uint64_t address;
    uint32_t beats;
    uint8_t id;
    bool fails;
    double ready;
};

struct Offer {
    bool waiting = false;
    uint64_t address = 0;
    uint8_t length = 0, id = 0;
};

struct Port {
    std::deque<Beat> reads;
    std::deque<Burst> writes;      // addresses whose data have not arrived yet
    std::deque<Burst> answers;
    uint32_t read_bursts = 0;
    Offer read, write;             // what was offered and not accepted in the previous cycle
    bool data_waiting = false;
    std::vector<uint8_t> data = std::vector<uint8_t>(BEAT + BEAT / 8 + 1);
};

class Model {
  public:
    explicit Model(const mr_memory& memory)
        : memory_(memory), random_(memory.shuffle), context_(new VerilatedContext), top_(new Vbisort_engine(context_.get())), ports_(PORTS),
          free_(memory.channels), busy_(memory.channels) {
        top_->clk = 0;
        top_->rst = 1;
        for (int i = 0; i < 4; i++) tick();
        top_->rst = 0;
        tick();
        cycles_ = 0;
    }

    ~Model() { top_->final(); }

    const char* error() const { return error_.c_str(); }
    uint64_t cycles() const { return cycles_; }
    uint64_t busy(uint32_t channel) const { return channel < busy_.size() ? uint64_t(busy_[channel]) : 0; }

    int write(uint32_t offset, uint32_t value) {
        top_->s_axil_awaddr = offset;
        top_->s_axil_wdata = value;
        top_->s_axil_wstrb = 15;
        top_->s_axil_bready = 1;
        bool address = true, data = true;
        for (uint32_t i = 0; i < LITE_PATIENCE; i++) {
            top_->s_axil_awvalid = address;
            top_->s_axil_wvalid = data;
            const bool took_address = address && top_->s_axil_awready, took_data = data && top_->s_axil_wready;
            const bool answered = !address && !data && top_->s_axil_bvalid;
            tick();
            if (answered) return failed_ ? MR_PROTOCOL : MR_DONE;
            address &= !took_address;
            data &= !took_data;
        }
        say("AXI4-Lite: a write to %#x was not answered in %u cycles", offset, LITE_PATIENCE);
        return MR_HANG;
    }

    int read(uint32_t offset, uint32_t* value) {
        top_->s_axil_araddr = offset;
        top_->s_axil_rready = 1;
        bool address = true;
        for (uint32_t i = 0; i < LITE_PATIENCE; i++) {
            top_->s_axil_arvalid = address;
            const bool took = address && top_->s_axil_arready;
            const bool answered = !address && top_->s_axil_rvalid;
            *value = top_->s_axil_rdata;
            tick();
            if (answered) return failed_ ? MR_PROTOCOL : MR_DONE;
            address &= !took;
        }
        say("AXI4-Lite: a read of %#x was not answered in %u cycles", offset, LITE_PATIENCE);
        return MR_HANG;
    }

    int run(uint64_t idle, uint64_t most) {
        moved_at_ = cycles_;
        const uint64_t end = cycles_ + most;
        while (!top_->irq) {
            if (cycles_ == end) return MR_MORE;
            tick();
            if (failed_) return MR_PROTOCOL;
            if (cycles_ - moved_at_ > idle) {
                say("nothing moved for %llu cycles", (unsigned long long)idle);
                return MR_HANG;
            }
        }
        return MR_DONE;
    }

  private:
    void say(const char* format, ...) {
        char text[256];
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(text, sizeof text, format, arguments);
        va_end(arguments);
        error_ = text;
    }

    void broken(uint32_t port, const char* rule) {
        if (!failed_) say("AXI4 rule broken on memory port %u in cycle %llu: %s", port, (unsigned long long)cycles_, rule);
        failed_ = true;
    }

    // Outputs are registers and show this cycle's offers. Responses are set at the inputs before the rising clock edge.
    void tick() {
        for (uint32_t i = 0; i < PORTS; i++) {
            const uint32_t k = (cycles_ + i) % PORTS;
            take_read(k);
            take_write(k);
            take_data(k);
            give_read(k);
            give_answer(k);
        }
        top_->clk = 1;
        top_->eval();
        top_->clk = 0;
        top_->eval();
        cycles_++;
    }

    uint32_t channel(uint64_t address) const { return address / memory_.interleave & (memory_.channels - 1); }

    bool crowded(uint64_t address) const {
        return memory_.channels && free_[channel(address)] > double(cycles_) + memory_.backlog;
    }

    // The time at which a beat has passed its channel.
    double through(uint64_t address) {
        if (!memory_.channels) return double(cycles_) + 1;
        double& free = free_[channel(address)];
        const double time = BEAT / memory_.bytes_per_cycle;
        if (free < double(cycles_)) free = double(cycles_);
        free += time;
        busy_[channel(address)] += time;
        return free;
    }

    void check_address(uint32_t k, Offer& offer, uint64_t address, uint8_t length, uint8_t id, bool valid) {
        if (offer.waiting && !(valid && offer.address == address && offer.length == length && offer.id == id))
            broken(k, "an address changed or went away before it was taken");
        if (!valid) return;
        if (address % BEAT) broken(k, "a burst does not begin at a beat");
        if (address / 4096 != (address + (uint64_t(length) + 1) * BEAT - 1) / 4096) broken(k, "a burst crosses 4 KiB");
    }

    void take_read(uint32_t k) {
        Port& port = ports_[k];
        const bool valid = bit(top_->m_axi_arvalid, k);
        if (!valid && !port.read.waiting) {
            set_bit(top_->m_axi_arready, k, false);
            return;
        }
        const uint64_t address = field<uint64_t>(top_->m_axi_araddr, k);
        const uint8_t length = field<uint8_t>(top_->m_axi_arlen, k), id = field<uint8_t>(top_->m_axi_arid, k);
        check_address(k, port.read, address, length, id, valid);
        if (bits(top_->m_axi_arsize, 3 * k, 3) != SIZE || bits(top_->m_axi_arburst, 2 * k, 2) != 1)
            broken(k, "a read is not INCR of full beats");
        const bool ready = port.read_bursts < QUEUED && !crowded(address);
        set_bit(top_->m_axi_arready, k, ready);
        port.read = {valid && !ready, address, length, id};
        if (!valid || !ready) return;
        port.read_bursts++;
        moved_at_ = cycles_;
        for (uint32_t i = 0; i <= length; i++) {
            const uint64_t place = address + uint64_t(i) * BEAT;
            port.reads.push_back({place, through(place) + memory_.latency, id, i == length});
        }
    }

    uint32_t random() {    // xorshift: never 0, if it does not begin there
        random_ ^= random_ << 13;
        random_ ^= random_ >> 17;
        return random_ ^= random_ << 5;
    }

    // Which of the queued answers is given in this cycle: the oldest, or a random one among the oldest of each id. NONE: no answer is ready.
    template <typename Answer>
    size_t turn(const std::deque<Answer>& queue) {
        if (!memory_.shuffle) return queue.empty() || queue.front().ready > double(cycles_) ? NONE : 0;
        bool seen[1 << ID_BITS] = {};
        size_t ready[1 << ID_BITS], count = 0;
        for (size_t i = 0; i < queue.size(); i++) {
            if (seen[queue[i].id]) continue;
            seen[queue[i].id] = true;
            if (queue[i].ready <= double(cycles_)) ready[count++] = i;
        }
        const uint32_t chosen = random();
        return count == 0 || chosen % 4 == 0 ? NONE : ready[chosen / 4 % count];
    }

    void give_read(uint32_t k) {
        Port& port = ports_[k];
        const size_t at = turn(port.reads);
        set_bit(top_->m_axi_rvalid, k, at != NONE);
        if (at == NONE) return;
        const Beat& beat = port.reads[at];
        const bool there = beat.address < memory_.bytes && memory_.bytes - beat.address >= BEAT;
        uint8_t* data = bytes_of(top_->m_axi_rdata) + k * BEAT;
        if (there) memcpy(data, memory_.cells + beat.address, BEAT);
        else memset(data, 0, BEAT);
        bytes_of(top_->m_axi_rid)[k] = beat.id;
        set_bit(top_->m_axi_rlast, k, beat.last);
        set_bit(top_->m_axi_rresp, 2 * k + 1, !there);
        set_bit(top_->m_axi_rresp, 2 * k, !there);
        if (!bit(top_->m_axi_rready, k)) return;
        moved_at_ = cycles_;
        if (beat.last) port.read_bursts--;
        port.reads.erase(port.reads.begin() + std::ptrdiff_t(at));
    }

    void take_write(uint32_t k) {
        Port& port = ports_[k];
        const bool valid = bit(top_->m_axi_awvalid, k);
        if (!valid && !port.write.waiting) {
            set_bit(top_->m_axi_awready, k, false);
            return;
        }
        const uint64_t address = field<uint64_t>(top_->m_axi_awaddr, k);
        const uint8_t length = field<uint8_t>(top_->m_axi_awlen, k), id = field<uint8_t>(top_->m_axi_awid, k);
        check_address(k, port.write, address, length, id, valid);
        if (bits(top_->m_axi_awsize, 3 * k, 3) != SIZE || bits(top_->m_axi_awburst, 2 * k, 2) != 1)
            broken(k, "a write is not INCR of full beats");
        const bool ready = port.writes.size() < QUEUED;
        set_bit(top_->m_axi_awready, k, ready);
        port.write = {valid && !ready, address, length, id};
        if (!valid || !ready) return;
        moved_at_ = cycles_;
        port.writes.push_back({address, uint32_t(length) + 1, id, false, 0});
    }

    void take_data(uint32_t k) {
        Port& port = ports_[k];
        const bool valid = bit(top_->m_axi_wvalid, k);
        if (!valid && !port.data_waiting) {
            set_bit(top_->m_axi_wready, k, false);
            return;
        }
        const uint8_t* data = bytes_of(top_->m_axi_wdata) + k * BEAT;
        const uint8_t* strobes = bytes_of(top_->m_axi_wstrb) + k * (BEAT / 8);
        const uint8_t last = bit(top_->m_axi_wlast, k);
        if (port.data_waiting && !(valid && same(port, data, strobes, last)))
            broken(k, "write data changed or went away before they were taken");
        const bool ready = !port.writes.empty() && !crowded(port.writes.front().address);
        set_bit(top_->m_axi_wready, k, ready);
        port.data_waiting = valid && !ready;
        if (port.data_waiting) keep(port, data, strobes, last);
        if (valid && ready) store(k, port, data, strobes, last);
    }

    static bool same(const Port& port, const uint8_t* data, const uint8_t* strobes, uint8_t last) {
        return !memcmp(port.data.data(), data, BEAT) && !memcmp(port.data.data() + BEAT, strobes, BEAT / 8) &&
               port.data.back() == last;
    }

    static void keep(Port& port, const uint8_t* data, const uint8_t* strobes, uint8_t last) {
        memcpy(port.data.data(), data, BEAT);
        memcpy(port.data.data() + BEAT, strobes, BEAT / 8);
        port.data.back() = last;
    }

    void store(uint32_t k, Port& port, const uint8_t* data, const uint8_t* strobes, uint8_t last) {
        Burst& burst = port.writes.front();
        moved_at_ = cycles_;
        if (burst.address < memory_.bytes && memory_.bytes - burst.address >= BEAT) {
            uint8_t* place = memory_.cells + burst.address;
            for (uint32_t i = 0; i < BEAT / 8; i++) {
                if (strobes[i] == 0xFF) memcpy(place + 8 * i, data + 8 * i, 8);
                else
                    for (uint32_t j = 0; j < 8; j++)
                        if (strobes[i] >> j & 1) place[8 * i + j] = data[8 * i + j];
            }
        } else {
            burst.fails = true;
        }
        burst.ready = through(burst.address) + memory_.latency;
        burst.address += BEAT;
        if ((--burst.beats == 0) != bool(last)) broken(k, "write data end elsewhere than their address said");
        if (burst.beats == 0) {
            port.answers.push_back(burst);
            port.writes.pop_front();
        }
    }

    void give_answer(uint32_t k) {
        Port& port = ports_[k];
        const size_t at = turn(port.answers);
        set_bit(top_->m_axi_bvalid, k, at != NONE);
        if (at == NONE) return;
        bytes_of(top_->m_axi_bid)[k] = port.answers[at].id;
        set_bit(top_->m_axi_bresp, 2 * k + 1, port.answers[at].fails);
        set_bit(top_->m_axi_bresp, 2 * k, port.answers[at].fails);
        if (!bit(top_->m_axi_bready, k)) return;
        moved_at_ = cycles_;
        port.answers.erase(port.answers.begin() + std::ptrdiff_t(at));
    }

    mr_memory memory_;
    uint32_t random_;
    std::unique_ptr<VerilatedContext> context_;
    std::unique_ptr<Vbisort_engine> top_;
    std::vector<Port> ports_;
    std::vector<double> free_, busy_;
    uint64_t cycles_ = 0, moved_at_ = 0;
    bool failed_ = false;
    std::string error_;
};

Model& of(void* model) { return *static_cast<Model*>(model); }

}  // namespace

static_assert(ID_BITS == 8, "ids are read as bytes");

void* mr_create(const mr_memory* memory) { return new Model(*memory); }

void mr_destroy(void* model) { delete static_cast<Model*>(model); }

const char* mr_error(void* model) { return of(model).error(); }

int mr_reg_write(void* model, const uint32_t* pairs, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        const int code = of(model).write(pairs[2 * i], pairs[2 * i + 1]);
        if (code) return code;
    }
    return MR_DONE;
}

int mr_reg_read(void* model, const uint32_t* offsets, uint32_t* values, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        const int code = of(model).read(offsets[i], values + i);
        if (code) return code;
    }
    return MR_DONE;
}

int mr_run(void* model, uint64_t idle, uint64_t most) { return of(model).run(idle, most); }

uint64_t mr_cycles(void* model) { return of(model).cycles(); }

uint64_t mr_busy(void* model, uint32_t channel) { return of(model).busy(channel); }
