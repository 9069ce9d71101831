// Implements equivalence.h with the units of hls/: each case is a dataflow region of sources, the unit and sinks, which stall randomly.

#include "equivalence.h"

#include "bisort_indexer.h"
#include "bisort_merger.h"
#include "bisort_partitioner.h"
#include "bisort_prober.h"

using namespace equivalence;

namespace {

constexpr int SHORT = 2;

// Checks the rules of a stream: all beats but the last are full, and only an empty stream has an empty beat.
void check(uint32_t count, uint32_t lanes, bool last, bool begun) {
    if (count > lanes || (count < lanes && !last)) throw std::runtime_error("a beat before the last is not full");
    if (count == 0 && begun) throw std::runtime_error("an empty beat behind others");
}

void send(hls::stream<tuples_t>& out, const uint64_t* keys, const uint32_t* ids, uint32_t count, Stalls stalls) {
    bool last = false;
    for (uint32_t at = 0; !last; at += W) {
        tuples_t beat = tuples_t();
        for (uint32_t i = 0; i < W && at + i < count; i++, beat.count += 1) {
            beat.key[i] = keys[at + i];
            beat.id[i] = ids[at + i];
        }
        last = at + W >= count;
        beat.last = last;
        while (stalls.now()) csim::pause();
        out.write(beat);
    }
}

template <int LANES>
void send(hls::stream<beat_t<word_t, LANES>>& out, const uint64_t* words, uint32_t count, Stalls stalls) {
    bool last = false;
    for (uint32_t at = 0; !last; at += LANES) {
        beat_t<word_t, LANES> beat = beat_t<word_t, LANES>();
        for (uint32_t i = 0; i < LANES && at + i < count; i++, beat.count += 1) beat.lane[i] = words[at + i];
        last = at + LANES >= count;
        beat.last = last;
        while (stalls.now()) csim::pause();
        out.write(beat);
    }
}

// The beats of a sink: processes must not throw, so the beats are stored and checked after the region has ended.
template <typename Beat>
void take(hls::stream<Beat>& in, std::vector<Beat>& beats, Stalls stalls) {
    bool last = false;
    while (!last) {
        while (stalls.now()) csim::pause();
        beats.push_back(in.read());
        last = beats.back().last;
    }
}

void tuples_into(const std::vector<tuples_t>& beats, Into<uint64_t>& keys, Into<uint32_t>& ids) {
    for (const tuples_t& beat : beats) {
        check(beat.count, W, beat.last, keys.count());
        for (uint32_t i = 0; i < beat.count; i++) {
            keys.put(beat.key[i]);
            ids.put(beat.id[i]);
        }
    }
}

}  // namespace

const char* eq_error() { return error().c_str(); }

int eq_merger(
    uint32_t cases, const uint64_t* seeds, const uint32_t* a_n, const uint64_t* a_keys, const uint32_t* a_ids, const uint32_t* b_n,
    const uint64_t* b_keys, const uint32_t* b_ids, uint32_t* out_n, uint64_t* out_keys, uint32_t* out_ids) {
    const auto a_at = begins(cases, a_n), b_at = begins(cases, b_n);
    return each(cases, [&](uint32_t k) {
        std::vector<tuples_t> seen;
        ap_uint<32> rows;
        {
            hls::stream<tuples_t, SHORT> a, b, out;
            DATAFLOW_BEGINS
            PROCESS(send(a, a_keys + a_at[k], a_ids + a_at[k], a_n[k], Stalls(seeds[k], 0)));
            PROCESS(send(b, b_keys + b_at[k], b_ids + b_at[k], b_n[k], Stalls(seeds[k], 1)));
            PROCESS(bisort_merger(a, b, out, rows));
            PROCESS(take(out, seen, Stalls(seeds[k], 2)));
        }
        Into<uint64_t> keys(out_keys, a_n[k] + b_n[k], "tuples");
        Into<uint32_t> ids(out_ids, a_n[k] + b_n[k], "tuples");
        tuples_into(seen, keys, ids);
        if (rows != keys.count()) throw std::runtime_error("the merger counted other rows than it gave");
        out_n[k] = keys.count();
    });
}

int eq_indexer(
    uint32_t cases, const uint64_t* seeds, const uint32_t* n, const uint64_t* keys, const uint32_t* ids, const uint32_t* step_log2,
    const uint32_t* first, uint32_t* out_n, uint64_t* out_keys, uint32_t* out_ids, uint32_t* sample_n, uint64_t* samples) {
    const auto at = begins(cases, n);
    return each(cases, [&](uint32_t k) {
        std::vector<tuples_t> seen;
        std::vector<sample_t> sampled;
        indexed_t counted;
        {
            hls::stream<tuples_t, SHORT> in, out;
            hls::stream<sample_t, SHORT> index;
            DATAFLOW_BEGINS
            PROCESS(send(in, keys + at[k], ids + at[k], n[k], Stalls(seeds[k], 3)));
            PROCESS(bisort_indexer(step_log2[k], first[k], in, out, index, counted));
            PROCESS(take(out, seen, Stalls(seeds[k], 4)));
            PROCESS(take(index, sampled, Stalls(seeds[k], 5)));
        }
        Into<uint64_t> passed(out_keys, n[k], "tuples"), found(samples, n[k], "samples");
        Into<uint32_t> rows(out_ids, n[k], "tuples");
        tuples_into(seen, passed, rows);
        for (const sample_t& sample : sampled) {
            check(sample.count, 1, sample.last, found.count());
            if (sample.count) found.put(sample.lane[0]);
        }
        if (counted.rows != passed.count() || counted.samples != found.count()) throw std::runtime_error("the indexer miscounted");
        out_n[k] = passed.count();
        sample_n[k] = found.count();
    });
}

int eq_partitioner(
    uint32_t cases, const uint64_t* seeds, const uint32_t* upper, const uint32_t* index_n, const uint64_t* index,
    const uint32_t* bound_n, const uint64_t* bounds, uint32_t* found_n, int32_t* found) {
    const auto index_at = begins(cases, index_n), at = begins(cases, bound_n);
    index_t chip = index_t();
    return each(cases, [&](uint32_t k) {
        std::vector<located_t> seen;
        {
            hls::stream<words_t, SHORT> samples;
            hls::stream<bound_t, SHORT> in;
            hls::stream<located_t, SHORT> out;
            DATAFLOW_BEGINS
            PROCESS(send<W>(samples, index + index_at[k], index_n[k], Stalls(seeds[k], 6)));
            PROCESS(send<1>(in, bounds + at[k], bound_n[k], Stalls(seeds[k], 7)));
            PROCESS(bisort_partitioner_on(chip, true, upper[k], samples, in, out));
            PROCESS(take(out, seen, Stalls(seeds[k], 8)));
        }
        Into<int32_t> partitions(found, bound_n[k], "bounds");
        for (const located_t& one : seen) {
            check(one.keep, 1, one.last, partitions.count());
            if (one.keep && one.bound != bounds[at[k] + partitions.count()]) throw std::runtime_error("a bound was changed");
            if (one.keep) partitions.put(one.none ? -1 : int32_t(one.partition));
        }
        found_n[k] = partitions.count();
    });
}

namespace {

// Bounds with their partitions, as the partitioner produces them.
void send_located(
    hls::stream<located_t>& out, const uint64_t* bounds, const int32_t* partitions, uint32_t count, Stalls stalls) {
    for (uint32_t i = 0; i < count || i == 0; i++) {
        const bool keep = i < count, none = !keep || partitions[i] < 0;
        while (stalls.now()) csim::pause();
        out.write({keep ? bounds[i] : 0, partition_t(none ? 0 : partitions[i]), none, keep, i + 1 >= count, false});
    }
}

// Sends the words of the requested partitions.
void answer(
    hls::stream<request_t>& requests, hls::stream<words_t>& words, const uint64_t* run, uint32_t size, uint32_t step,
    std::vector<int32_t>& asked, Stalls stalls) {
    for (request_t request = requests.read(); !request.last; request = requests.read()) {
        const uint32_t first = uint32_t(request.partition) * step;
        asked.push_back(int32_t(request.partition));
        if (first >= size) return;
        send<W>(words, run + first, size - first < step ? size - first : step, stalls);
    }
}

}  // namespace

int eq_prober(
    uint32_t cases, const uint64_t* seeds, const uint32_t* upper, const uint32_t* step_log2, const uint32_t* run_n,
    const uint64_t* run, const uint32_t* bound_n, const uint64_t* bounds, const int32_t* partitions, uint32_t* position_n,
    uint32_t* positions, uint32_t* asked_n, int32_t* asked) {
    const auto run_at = begins(cases, run_n), at = begins(cases, bound_n);
    return each(cases, [&](uint32_t k) {
        std::vector<position_t> seen;
        std::vector<int32_t> wanted;
        probed_t counted;
        const uint32_t step = 1u << step_log2[k];
        {
            hls::stream<located_t, SHORT> in;
            hls::stream<request_t, SHORT> requests;
            hls::stream<words_t, SHORT> words;
            hls::stream<position_t, SHORT> out;
            DATAFLOW_BEGINS
            PROCESS(send_located(in, bounds + at[k], partitions + at[k], bound_n[k], Stalls(seeds[k], 9)));
            PROCESS(bisort_prober(upper[k], step_log2[k], in, requests, words, out, counted));
            PROCESS(answer(requests, words, run + run_at[k], run_n[k], step, wanted, Stalls(seeds[k], 10)));
            PROCESS(take(out, seen, Stalls(seeds[k], 11)));
        }
        Into<uint32_t> found(positions, bound_n[k], "positions");
        Into<int32_t> asks(asked, bound_n[k], "requests");
        for (const position_t& one : seen) {
            check(one.count, 1, one.last, found.count());
            if (one.count) found.put(one.lane[0]);
        }
        for (const int32_t one : wanted) asks.put(one);
        if (counted.rows != found.count() || counted.partitions != asks.count()) throw std::runtime_error("the prober miscounted");
        position_n[k] = found.count();
        asked_n[k] = asks.count();
    });
}
