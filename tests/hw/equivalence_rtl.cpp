// Implements equivalence.h with the units of hw/rtl: each is a verilated module of W lanes, clocked between sources and sinks that stall
// randomly.
//
// Streams follow AXI4-Stream: an offered beat stays until it is accepted, which is also checked for the unit. The next case begins when the
// streams of the previous one have ended, but a merger's inputs may run ahead into it, because only the streams themselves separate cases.

#include "equivalence.h"

#include <cstring>
#include <deque>
#include <memory>

#include "Vbisort_indexer.h"
#include "Vbisort_merger.h"
#include "Vbisort_partitioner.h"
#include "Vbisort_prober.h"
#include "verilated.h"

using namespace equivalence;

namespace {

constexpr uint32_t PATIENCE = 5000;
constexpr size_t TUPLE = 12, WORD = 8;

struct Beat {
    std::vector<uint8_t> data;
    uint32_t keep, user, last;
    uint32_t number;    // number of its case
};

// The signals of a stream in the verilated module; missing ones are null.
struct Signals {
    uint8_t *valid, *ready, *keep, *last, *user;
    void* data;
    size_t bytes;
};

template <typename Port>
Signals signals(uint8_t& valid, uint8_t& ready, Port& data, uint8_t* keep, uint8_t* last, uint8_t* user = nullptr) {
    return {&valid, &ready, keep, last, user, &data, sizeof(Port)};
}

class Source {
  public:
    Source(Signals to, const uint64_t* seeds, uint64_t stream) : to_(to), seeds_(seeds), stream_(stream), stalls_(0, 0) {
        *to_.valid = 0;
    }

    void send(Beat beat) { waiting_.push_back(std::move(beat)); }

    // Before the rising clock edge: offers a beat, of cases up to `most`.
    void offer(uint32_t most) {
        if (*to_.valid || waiting_.empty() || waiting_.front().number > most) return;
        const Beat& beat = waiting_.front();
        if (beat.number != number_) stalls_ = Stalls(seeds_[beat.number], stream_);
        number_ = beat.number;
        if (stalls_.now()) return;
        memset(to_.data, 0, to_.bytes);
        memcpy(to_.data, beat.data.data(), beat.data.size());
        if (to_.keep) *to_.keep = beat.keep;
        if (to_.last) *to_.last = beat.last;
        if (to_.user) *to_.user = beat.user;
        *to_.valid = 1;
    }

    // Whether the beat is accepted at the next clock edge.
    bool note() { return taken_ = *to_.valid && *to_.ready; }

    // After the rising clock edge.
    void pass() {
        if (!taken_) return;
        waiting_.pop_front();
        *to_.valid = 0;
    }

    bool idle() const { return waiting_.empty(); }

  private:
    Signals to_;
    const uint64_t* seeds_;
    uint64_t stream_;
    Stalls stalls_;
    uint32_t number_ = ~0u;
    bool taken_ = false;
    std::deque<Beat> waiting_;
};

class Sink {
  public:
    Sink(Signals from, const uint64_t* seeds, uint64_t stream) : from_(from), seeds_(seeds), stream_(stream), stalls_(0, 0) {
        *from_.ready = 0;
    }

    // A stream that has ended accepts no more beats in its case.
    void offer(uint32_t number) {
        if (number != number_) stalls_ = Stalls(seeds_[number], stream_);
        number_ = number;
        *from_.ready = !ended_ && !stalls_.now();
    }

    // Before the rising clock edge: stores accepted beats and checks that offered beats stay unchanged.
    bool taken() {
        if (!*from_.valid) {
            if (refused_) throw std::runtime_error("an offered beat was taken back");
            return false;
        }
        Beat beat;
        beat.keep = from_.keep ? *from_.keep : 1;
        beat.last = from_.last ? *from_.last : 0;
        beat.user = from_.user && beat.keep ? *from_.user : 0;
        if (beat.keep) beat.data.assign(static_cast<uint8_t*>(from_.data), static_cast<uint8_t*>(from_.data) + from_.bytes);
        if (refused_ && (beat.data != kept_.data || beat.keep != kept_.keep || beat.last != kept_.last || beat.user != kept_.user))
            throw std::runtime_error("an offered beat changed before it was taken");
        refused_ = !*from_.ready;
        if (refused_) {
            kept_ = std::move(beat);
            return false;
        }
        ended_ = ended_ || beat.last;
        beats.push_back(std::move(beat));
        return true;
    }

    bool ended() const { return ended_; }

    void clear() {
        beats.clear();
        ended_ = false;
    }

    std::vector<Beat> beats;

  private:
    Signals from_;
    const uint64_t* seeds_;
    uint64_t stream_;
    Stalls stalls_;
    uint32_t number_ = ~0u;
    Beat kept_;
    bool refused_ = false, ended_ = false;
};

// A unit with its streams. Streams are created first, then the unit is reset.
template <typename Unit>
class Bench {
  public:
    explicit Bench(const uint64_t* seeds) : unit(new Unit(&context_)), seeds_(seeds) {}
    ~Bench() { unit->final(); }

    Source& source(Signals to, uint64_t stream) { return sources_.emplace_back(to, seeds_, stream); }
    Sink& sink(Signals from, uint64_t stream) { return sinks_.emplace_back(from, seeds_, stream); }

    void reset() {
        unit->rst = 1;
        for (int i = 0; i < 4; i++) tick();
        unit->rst = 0;
    }

    void tick() {
        unit->clk = 0;
        unit->eval();
        unit->clk = 1;
        unit->eval();
    }

    // Clocks until these streams have ended; sources offer beats of cases up to `most`; `each` is called in every cycle.
    template <typename Each>
    void run(uint32_t number, uint32_t most, std::initializer_list<Sink*> ends, Each each) {
        for (Sink& sink : sinks_) sink.clear();
        uint32_t idle = 0;
        while (!all_ended(ends)) {
            for (Source& source : sources_) source.offer(most);
            for (Sink& sink : sinks_) sink.offer(number);
            unit->clk = 0;
            unit->eval();
            bool moved = false;
            for (Sink& sink : sinks_) moved = sink.taken() || moved;
            for (Source& source : sources_) moved = source.note() || moved;
            unit->clk = 1;
            unit->eval();
            for (Source& source : sources_) source.pass();
            each();
            idle = moved ? 0 : idle + 1;
            if (idle > PATIENCE) throw std::runtime_error("nothing moved for " + std::to_string(PATIENCE) + " cycles");
        }
    }

  private:
    static bool all_ended(std::initializer_list<Sink*> sinks) {
        for (const Sink* sink : sinks)
            if (!sink->ended()) return false;
        return true;
    }

    VerilatedContext context_;

  public:
    std::unique_ptr<Unit> unit;

  private:
    const uint64_t* seeds_;
    std::deque<Source> sources_;
    std::deque<Sink> sinks_;
};

const auto nothing = [] {};

// Packs values of `bytes` each, written by `fill` one by one, into the beats of a stream.
template <typename Fill>
void send(Source& source, uint32_t number, uint32_t count, uint32_t lanes, size_t bytes, Fill fill) {
    for (uint32_t at = 0; at == 0 || at < count; at += lanes) {
        const uint32_t kept = count - at < lanes ? count - at : lanes;
        Beat beat = {std::vector<uint8_t>(kept * bytes), (1u << kept) - 1, 0, at + lanes >= count, number};
        for (uint32_t i = 0; i < kept; i++) fill(at + i, beat.data.data() + i * bytes);
        source.send(std::move(beat));
    }
}

void send_words(Source& source, uint32_t number, uint32_t lanes, const uint64_t* words, uint32_t count) {
    send(source, number, count, lanes, WORD, [&](uint32_t i, uint8_t* place) { memcpy(place, words + i, WORD); });
}

// A tuple is {key, id}: the id is in the lowest bits.
void send_tuples(Source& source, uint32_t number, const uint64_t* keys, const uint32_t* ids, uint32_t count) {
    send(source, number, count, W, TUPLE, [&](uint32_t i, uint8_t* place) {
        memcpy(place, ids + i, 4);
        memcpy(place + 4, keys + i, 8);
    });
}

// Checks the rules of a stream, and calls `put` with each value's position in its beat.
template <typename Put>
void receive(const Sink& sink, uint32_t lanes, size_t bytes, Put put) {
    bool begun = false;
    for (const Beat& beat : sink.beats) {
        const uint32_t count = __builtin_popcount(beat.keep);
        if (beat.keep != (1u << count) - 1) throw std::runtime_error("a beat keeps lanes with gaps");
        if (count < lanes && !beat.last) throw std::runtime_error("a beat before the last is not full");
        if (count == 0 && begun) throw std::runtime_error("an empty beat behind others");
        for (uint32_t i = 0; i < count; i++) put(beat, beat.data.data() + i * bytes);
        begun = true;
    }
}

template <typename T>
T value(const uint8_t* place) {
    T read;
    memcpy(&read, place, sizeof(T));
    return read;
}

uint32_t receive_tuples(const Sink& sink, uint64_t*& keys, uint32_t*& ids, uint32_t most) {
    Into<uint64_t> to_keys(keys, most, "tuples");
    Into<uint32_t> to_ids(ids, most, "tuples");
    receive(sink, W, TUPLE, [&](const Beat&, const uint8_t* place) {
        to_ids.put(value<uint32_t>(place));
        to_keys.put(value<uint64_t>(place + 4));
    });
    return to_keys.count();
}

}  // namespace

#define STREAM(unit, name) (unit).name##_tvalid, (unit).name##_tready, (unit).name##_tdata

const char* eq_error() { return error().c_str(); }

int eq_merger(
    uint32_t cases, const uint64_t* seeds, const uint32_t* a_n, const uint64_t* a_keys, const uint32_t* a_ids, const uint32_t* b_n,
    const uint64_t* b_keys, const uint32_t* b_ids, uint32_t* out_n, uint64_t* out_keys, uint32_t* out_ids) {
    const auto a_at = begins(cases, a_n), b_at = begins(cases, b_n);
    Bench<Vbisort_merger> bench(seeds);
    auto& unit = *bench.unit;
    Source& a = bench.source(signals(STREAM(unit, s_axis_a), &unit.s_axis_a_tkeep, &unit.s_axis_a_tlast), 0);
    Source& b = bench.source(signals(STREAM(unit, s_axis_b), &unit.s_axis_b_tkeep, &unit.s_axis_b_tlast), 1);
    Sink& out = bench.sink(signals(STREAM(unit, m_axis), &unit.m_axis_tkeep, &unit.m_axis_tlast), 2);
    bench.reset();
    for (uint32_t k = 0; k < cases; k++) {
        send_tuples(a, k, a_keys + a_at[k], a_ids + a_at[k], a_n[k]);
        send_tuples(b, k, b_keys + b_at[k], b_ids + b_at[k], b_n[k]);
    }
    return each(cases, [&](uint32_t k) {
        bench.run(k, cases, {&out}, nothing);
        out_n[k] = receive_tuples(out, out_keys, out_ids, a_n[k] + b_n[k]);
    });
}

int eq_indexer(
    uint32_t cases, const uint64_t* seeds, const uint32_t* n, const uint64_t* keys, const uint32_t* ids, const uint32_t* step_log2,
    const uint32_t* first, uint32_t* out_n, uint64_t* out_keys, uint32_t* out_ids, uint32_t* sample_n, uint64_t* samples) {
    const auto at = begins(cases, n);
    Bench<Vbisort_indexer> bench(seeds);
    auto& unit = *bench.unit;
    Source& in = bench.source(signals(STREAM(unit, s_axis), &unit.s_axis_tkeep, &unit.s_axis_tlast), 3);
    Sink& out = bench.sink(signals(STREAM(unit, m_axis), &unit.m_axis_tkeep, &unit.m_axis_tlast), 4);
    Sink& index = bench.sink(signals(STREAM(unit, m_index), &unit.m_index_tkeep, &unit.m_index_tlast), 5);
    bench.reset();
    return each(cases, [&](uint32_t k) {
        unit.step_log2 = step_log2[k];
        unit.first = first[k];
        send_tuples(in, k, keys + at[k], ids + at[k], n[k]);
        bench.run(k, k, {&out, &index}, nothing);
        out_n[k] = receive_tuples(out, out_keys, out_ids, n[k]);
        Into<uint64_t> found(samples, n[k], "samples");
        receive(index, 1, WORD, [&](const Beat&, const uint8_t* place) { found.put(value<uint64_t>(place)); });
        sample_n[k] = found.count();
    });
}

int eq_partitioner(
    uint32_t cases, const uint64_t* seeds, const uint32_t* upper, const uint32_t* index_n, const uint64_t* index,
    const uint32_t* bound_n, const uint64_t* bounds, uint32_t* found_n, int32_t* found) {
    const auto index_at = begins(cases, index_n), at = begins(cases, bound_n);
    Bench<Vbisort_partitioner> bench(seeds);
    auto& unit = *bench.unit;
    Source& samples = bench.source(signals(STREAM(unit, s_index), &unit.s_index_tkeep, &unit.s_index_tlast), 6);
    Source& in = bench.source(signals(STREAM(unit, s_axis), &unit.s_axis_tkeep, &unit.s_axis_tlast), 7);
    Sink& out = bench.sink(signals(STREAM(unit, m_axis), &unit.m_axis_tkeep, &unit.m_axis_tlast, &unit.m_axis_tuser), 8);
    unit.drop = 0;
    bench.reset();
    return each(cases, [&](uint32_t k) {
        unit.upper = upper[k];
        unit.drop = 1;
        bench.tick();
        unit.drop = 0;
        send_words(samples, k, W, index + index_at[k], index_n[k]);
        send_words(in, k, 1, bounds + at[k], bound_n[k]);
        bench.run(k, k, {&out}, nothing);
        Into<int32_t> partitions(found, bound_n[k], "bounds");
        receive(out, 1, WORD, [&](const Beat& beat, const uint8_t* place) {
            if (value<uint64_t>(place) != bounds[at[k] + partitions.count()]) throw std::runtime_error("a bound was changed");
            partitions.put(beat.user >> PART_W ? -1 : int32_t(beat.user));
        });
        found_n[k] = partitions.count();
    });
}

int eq_prober(
    uint32_t cases, const uint64_t* seeds, const uint32_t* upper, const uint32_t* step_log2, const uint32_t* run_n,
    const uint64_t* run, const uint32_t* bound_n, const uint64_t* bounds, const int32_t* partitions, uint32_t* position_n,
    uint32_t* positions, uint32_t* asked_n, int32_t* asked) {
    const auto run_at = begins(cases, run_n), at = begins(cases, bound_n);
    Bench<Vbisort_prober> bench(seeds);
    auto& unit = *bench.unit;
    Source& in = bench.source(signals(STREAM(unit, s_axis), &unit.s_axis_tkeep, &unit.s_axis_tlast, &unit.s_axis_tuser), 9);
    Source& words = bench.source(signals(STREAM(unit, s_words), &unit.s_words_tkeep, &unit.s_words_tlast), 10);
    Sink& out = bench.sink(signals(STREAM(unit, m_axis), &unit.m_axis_tkeep, &unit.m_axis_tlast), 11);
    Sink& requests = bench.sink(signals(STREAM(unit, m_req), nullptr, nullptr), 12);
    bench.reset();
    return each(cases, [&](uint32_t k) {
        const uint32_t step = 1u << step_log2[k];
        size_t answered = 0;
        unit.upper = upper[k];
        unit.step_log2 = step_log2[k];
        for (uint32_t i = 0; i == 0 || i < bound_n[k]; i++) {
            const bool keep = i < bound_n[k], none = keep && partitions[at[k] + i] < 0;
            Beat beat = {std::vector<uint8_t>(WORD), keep, 0, i + 1 >= bound_n[k], k};
            if (keep) memcpy(beat.data.data(), bounds + at[k] + i, WORD);
            if (keep) beat.user = none ? 1u << PART_W : uint32_t(partitions[at[k] + i]);
            in.send(std::move(beat));
        }
        Into<int32_t> asks(asked, bound_n[k], "requests");
        bench.run(k, k, {&out}, [&] {
            for (; answered < requests.beats.size(); answered++) {
                const uint32_t partition = requests.beats[answered].data[0], begin = partition * step;
                asks.put(int32_t(partition));
                if (begin >= run_n[k]) throw std::runtime_error("a partition was asked for that is not there");
                send_words(words, k, W, run + run_at[k] + begin, run_n[k] - begin < step ? run_n[k] - begin : step);
            }
        });
        Into<uint32_t> found(positions, bound_n[k], "positions");
        receive(out, 1, 4, [&](const Beat&, const uint8_t* place) { found.put(value<uint32_t>(place)); });
        position_n[k] = found.count();
        asked_n[k] = asks.count();
        if (!words.idle()) throw std::runtime_error("words that were asked for were not taken");
    });
}
