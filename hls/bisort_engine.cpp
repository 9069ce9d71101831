// The run engine: executes one command of hw/abi.toml with one merger, its indexer and one pair of probers (PanJoin, IV).
//
// Equivalent to hw/rtl/bisort_engine.sv with one cluster and one pair. The parameters have the layout of the registers. Checks, their order
// and their codes are those of hw/rtl/bisort_sequencer.sv, so a bad command starts nothing. Each opcode is a dataflow region. Each array
// has its own memory port of 512 bits; the board's interconnect decides which arrays share a memory.
// For more mergers and probers, instantiate more compute units of this kernel. Not included: CRCs and cycle counters.
//
// As a kernel, every argument is a buffer, as XRT passes them (`xrt::run::set_arg`): the command is read from one and the result written to
// another. The pointers in a command are byte offsets into the buffer of their port. A PROBE reads the run's words through a_words and
// a_ids, so both are the buffer of its words.

#include "bisort_engine.h"

#include "bisort_boundary.h"
#include "bisort_indexer.h"
#include "bisort_memory.h"
#include "bisort_merger.h"
#include "bisort_prober.h"

using namespace bisort_abi;

namespace {

// The parameters by name.
struct job_t {
    ap_uint<64> a_words, a_ids, b_words, b_ids, out_words, out_ids, index;
    band_t band;
    ap_uint<32> a_count, b_count, step_log2, a_slot, b_slot;
    bool with_index, is_band, keep;
};

ap_uint<32> short_of(const ap_uint<32> job[JOB_WORDS], int offset) {
#pragma HLS INLINE
    return job[(offset - REG_A_WORDS) / 4];
}

ap_uint<64> long_of(const ap_uint<32> job[JOB_WORDS], int offset) {
#pragma HLS INLINE
    return ap_uint<64>(short_of(job, offset + 4)) << 32 | short_of(job, offset);
}

job_t read_job(const ap_uint<32> job[JOB_WORDS]) {
    const ap_uint<32> flags = short_of(job, REG_FLAGS);
    job_t read;
    read.a_words = long_of(job, REG_A_WORDS);
    read.a_ids = long_of(job, REG_A_IDS);
    read.b_words = long_of(job, REG_B_WORDS);
    read.b_ids = long_of(job, REG_B_IDS);
    read.out_words = long_of(job, REG_OUT_WORDS);
    read.out_ids = long_of(job, REG_OUT_IDS);
    read.index = long_of(job, REG_INDEX);
    read.band.below = long_of(job, REG_BELOW);
    read.band.above = long_of(job, REG_ABOVE);
    read.band.least = long_of(job, REG_LEAST);
    read.band.most = long_of(job, REG_MOST);
    read.a_count = short_of(job, REG_A_COUNT);
    read.b_count = short_of(job, REG_B_COUNT);
    read.step_log2 = short_of(job, REG_STEP_LOG2);
    read.a_slot = short_of(job, REG_SLOT_A);
    read.b_slot = short_of(job, REG_SLOT_B);
    read.with_index = flags >> FLAG_INDEX & 1;
    read.is_band = flags >> FLAG_BAND & 1;
    read.keep = flags >> FLAG_KEEP & 1;
    return read;
}

bool off(ap_uint<64> address, int bytes) {
#pragma HLS INLINE
    return (address & (bytes - 1)) != 0;
}

// Samples of an index over `size` words.
ap_uint<33> samples_of(ap_uint<32> size, ap_uint<5> step_log2) {
#pragma HLS INLINE
    const ap_uint<33> step = ap_uint<33>(1) << step_log2;
    const ap_uint<34> rounded = size + step - 1;
    return rounded >> step_log2;
}

// Reports the first error.
ap_uint<8> check(ap_uint<8> opcode, const job_t& job) {
    constexpr int WORD = KEY_W / 8, ID = ID_W / 8;
    const bool merges = opcode == OP_MERGE, probes = opcode == OP_PROBE, indexes = opcode == OP_INDEX;
    const bool uses_index = !merges || job.with_index;
    const ap_uint<33> sum = ap_uint<33>(job.a_count) + job.b_count;
    const bool zero = merges ? sum == 0 : job.a_count == 0 || (probes && job.b_count == 0);
    const bool over = merges ? sum > MAX_LENGTH : job.a_count > MAX_LENGTH || (probes && job.b_count > MAX_LENGTH);
    const bool word_off = off(job.a_words, WORD) || (!indexes && off(job.b_words, WORD)) || (merges && off(job.out_words, WORD)) ||
                          (probes && !job.is_band && off(job.b_ids, WORD)) || (uses_index && off(job.index, WORD));
    const bool id_off = (merges && (off(job.a_ids, ID) || off(job.b_ids, ID) || off(job.out_ids, ID))) ||
                        (probes && (off(job.out_words, ID) || off(job.out_ids, ID)));
    const bool slice_off = probes ? job.a_slot != job.b_count : job.a_slot != job.a_count || (merges && job.b_slot != job.b_count);
    if (!merges && !probes && !indexes) return ERR_UNKNOWN_OPCODE;
    if (zero) return ERR_ZERO_LENGTH;
    if (over) return ERR_OVER_LIMIT;
    if (word_off || id_off) return ERR_UNALIGNED;
    if (uses_index && (job.step_log2 < MIN_STEP_LOG2 || job.step_log2 > 31)) return ERR_BAD_STEP;
    if (probes && samples_of(job.a_count, job.step_log2) > 1 << INDEX_LOG2) return ERR_INDEX_TOO_LARGE;
    if (slice_off) return ERR_BAD_SLICE;
    return ERR_OK;
}

// Combines words and ids into tuples.
void join(hls::stream<words_t>& words, hls::stream<rows_t>& ids, hls::stream<tuples_t>& out) {
    bool last = false;
join:
    while (!last) {
#pragma HLS PIPELINE II=1
        const words_t keys = words.read();
        const rows_t rows = ids.read();
        tuples_t beat;
#pragma HLS ARRAY_PARTITION variable=keys.lane complete
#pragma HLS ARRAY_PARTITION variable=rows.lane complete
#pragma HLS ARRAY_PARTITION variable=beat.key complete
#pragma HLS ARRAY_PARTITION variable=beat.id complete
        for (int i = 0; i < W; i++) {
#pragma HLS UNROLL
            beat.key[i] = keys.lane[i];
            beat.id[i] = rows.lane[i];
        }
        beat.count = keys.count;
        beat.last = last = keys.last;
        out.write(beat);
    }
}

// Words only, as tuples whose ids are not used.
void widen(hls::stream<words_t>& words, hls::stream<tuples_t>& out) {
    bool last = false;
widen:
    while (!last) {
#pragma HLS PIPELINE II=1
        const words_t keys = words.read();
        tuples_t beat = tuples_t();
#pragma HLS ARRAY_PARTITION variable=keys.lane complete
#pragma HLS ARRAY_PARTITION variable=beat.key complete
#pragma HLS ARRAY_PARTITION variable=beat.id complete
        for (int i = 0; i < W; i++) {
#pragma HLS UNROLL
            beat.key[i] = keys.lane[i];
        }
        beat.count = keys.count;
        beat.last = last = keys.last;
        out.write(beat);
    }
}

// Splits tuples into words and ids.
void split(hls::stream<tuples_t>& in, hls::stream<words_t>& words, hls::stream<rows_t>& ids) {
    bool last = false;
split:
    while (!last) {
#pragma HLS PIPELINE II=1
        const tuples_t beat = in.read();
        words_t keys;
        rows_t rows;
#pragma HLS ARRAY_PARTITION variable=beat.key complete
#pragma HLS ARRAY_PARTITION variable=beat.id complete
#pragma HLS ARRAY_PARTITION variable=keys.lane complete
#pragma HLS ARRAY_PARTITION variable=rows.lane complete
        for (int i = 0; i < W; i++) {
#pragma HLS UNROLL
            keys.lane[i] = beat.key[i];
            rows.lane[i] = beat.id[i];
        }
        keys.count = rows.count = beat.count;
        keys.last = rows.last = last = beat.last;
        words.write(keys);
        ids.write(rows);
    }
}

void drop(hls::stream<tuples_t>& in) {
    bool last = false;
drop:
    while (!last) {
#pragma HLS PIPELINE II=1
        last = in.read().last;
    }
}

// Duplicates a stream for two readers.
void copy(bool wanted, hls::stream<words_t>& in, hls::stream<words_t>& one, hls::stream<words_t>& other) {
    bool last = !wanted;
copy:
    while (!last) {
#pragma HLS PIPELINE II=1
        const words_t beat = in.read();
#pragma HLS ARRAY_PARTITION variable=beat.lane complete
        last = beat.last;
        one.write(beat);
        other.write(beat);
    }
}

void merge(
    const job_t& job, const port_t* a_words_port, const port_t* a_ids_port, const port_t* b_words_port, const port_t* b_ids_port,
    port_t* out_words_port, port_t* out_ids_port, port_t* index_port, ap_uint<32>& merged, indexed_t& indexed) {
#pragma HLS DATAFLOW
    hls::stream<transfer_t, 2> aw_transfers, ai_transfers, bw_transfers, bi_transfers;
    hls::stream<port_t, FAR> aw_beats, ai_beats, bw_beats, bi_beats;
    hls::stream<words_t, NEAR> a_words, b_words, out_words;
    hls::stream<rows_t, NEAR> a_ids, b_ids, out_ids;
    hls::stream<tuples_t, NEAR> a, b, both, passed;
    hls::stream<sample_t, NEAR> samples;
    hls::stream<chunk_t, NEAR> word_chunks, id_chunks, index_chunks;
    const ap_uint<5> step_log2 = job.step_log2;
    const ap_uint<32> size = job.a_count + job.b_count;
    const ap_uint<32> samples_to_write = job.with_index ? ap_uint<32>(samples_of(size, step_log2)) : ap_uint<32>(0);
    DATAFLOW_BEGINS
    PROCESS(load<word_t>(a_words_port, job.a_words, job.a_count, aw_transfers, aw_beats));
    PROCESS(load<row_t>(a_ids_port, job.a_ids, job.a_count, ai_transfers, ai_beats));
    PROCESS(load<word_t>(b_words_port, job.b_words, job.b_count, bw_transfers, bw_beats));
    PROCESS(load<row_t>(b_ids_port, job.b_ids, job.b_count, bi_transfers, bi_beats));
    PROCESS(unpack<word_t, W>(false, aw_transfers, aw_beats, a_words));
    PROCESS(unpack<row_t, W>(false, ai_transfers, ai_beats, a_ids));
    PROCESS(unpack<word_t, W>(false, bw_transfers, bw_beats, b_words));
    PROCESS(unpack<row_t, W>(false, bi_transfers, bi_beats, b_ids));
    PROCESS(join(a_words, a_ids, a));
    PROCESS(join(b_words, b_ids, b));
    PROCESS(bisort_merger(a, b, both, merged));
    PROCESS(bisort_indexer(step_log2, 0, both, passed, samples, indexed));
    PROCESS(split(passed, out_words, out_ids));
    PROCESS(pack<word_t, W>(true, job.out_words, out_words, word_chunks));
    PROCESS(pack<row_t, W>(true, job.out_ids, out_ids, id_chunks));
    PROCESS(pack<word_t, 1>(job.with_index, job.index, samples, index_chunks));
    PROCESS(store<word_t>(out_words_port, job.out_words, size, word_chunks));
    PROCESS(store<row_t>(out_ids_port, job.out_ids, size, id_chunks));
    PROCESS(store<word_t>(index_port, job.index, samples_to_write, index_chunks));
}

void index(const job_t& job, const port_t* words_port, port_t* index_port, indexed_t& indexed) {
#pragma HLS DATAFLOW
    hls::stream<transfer_t, 2> transfers;
    hls::stream<port_t, FAR> beats;
    hls::stream<words_t, NEAR> words;
    hls::stream<tuples_t, NEAR> tuples, passed;
    hls::stream<sample_t, NEAR> samples;
    hls::stream<chunk_t, NEAR> chunks;
    const ap_uint<5> step_log2 = job.step_log2;
    const ap_uint<32> samples_to_write = samples_of(job.a_count, step_log2);
    DATAFLOW_BEGINS
    PROCESS(load<word_t>(words_port, job.a_words, job.a_count, transfers, beats));
    PROCESS(unpack<word_t, W>(false, transfers, beats, words));
    PROCESS(widen(words, tuples));
    PROCESS(bisort_indexer(step_log2, 0, tuples, passed, samples, indexed));
    PROCESS(drop(passed));
    PROCESS(pack<word_t, 1>(true, job.index, samples, chunks));
    PROCESS(store<word_t>(index_port, job.index, samples_to_write, chunks));
}

// Positions of lower bounds are written to out_words, of upper bounds to out_ids.
void probe(
    const job_t& job, bool reload, ap_uint<32> samples, chip_t& chip, const port_t* low_words_port, const port_t* high_words_port,
    const port_t* low_port, const port_t* high_port, const port_t* index_port, port_t* starts_port, port_t* ends_port,
    probed_t& low, probed_t& high) {
#pragma HLS DATAFLOW
    hls::stream<transfer_t, 2> index_transfers, low_transfers, high_transfers;
    hls::stream<port_t, FAR> index_beats, low_beats, high_beats, low_word_beats, high_word_beats;
    hls::stream<words_t, NEAR> index_words, low_index, high_index;
    hls::stream<words_t, FAR * (PORT_W / 64) / W> low_words, high_words;    // as many words as the port beats contain
    hls::stream<bound_t, NEAR> low_given, high_given, low_bounds, high_bounds;
    hls::stream<located_t, NEAR> low_located, high_located;
    hls::stream<located_t, FAR> low_pending, high_pending;
    hls::stream<request_t, FAR> low_requests, high_requests;
    hls::stream<transfer_t, FAR> low_parts, high_parts;
    hls::stream<position_t, NEAR> low_positions, high_positions;
    hls::stream<chunk_t, NEAR> low_chunks, high_chunks;
    const ap_uint<5> step_log2 = job.step_log2;
    const ap_uint<32> high_count = job.is_band ? ap_uint<32>(0) : job.b_count;
    const ap_uint<32> to_load = reload ? samples : ap_uint<32>(0);
    DATAFLOW_BEGINS
    PROCESS(load<word_t>(index_port, job.index, to_load, index_transfers, index_beats));
    PROCESS(unpack<word_t, W>(!reload, index_transfers, index_beats, index_words));
    PROCESS(copy(reload, index_words, low_index, high_index));
    PROCESS(load<word_t>(low_port, job.b_words, job.b_count, low_transfers, low_beats));
    PROCESS(load<word_t>(high_port, job.b_ids, high_count, high_transfers, high_beats));
    PROCESS(unpack<word_t, 1>(false, low_transfers, low_beats, low_given));
    PROCESS(unpack<word_t, 1>(job.is_band, high_transfers, high_beats, high_given));
    PROCESS(bisort_boundary(job.is_band, job.band, low_given, high_given, low_bounds, high_bounds));
    PROCESS(bisort_partitioner_on(chip.low, reload, false, low_index, low_bounds, low_located));
    PROCESS(bisort_partitioner_on(chip.high, reload, true, high_index, high_bounds, high_located));
    PROCESS(bisort_prober_ask(low_located, low_pending, low_requests, low));
    PROCESS(bisort_prober_ask(high_located, high_pending, high_requests, high));
    PROCESS(load_partitions(low_words_port, job.a_words, job.a_count, step_log2, low_requests, low_parts, low_word_beats));
    PROCESS(load_partitions(high_words_port, job.a_words, job.a_count, step_log2, high_requests, high_parts, high_word_beats));
    PROCESS(unpack<word_t, W>(true, low_parts, low_word_beats, low_words));
    PROCESS(unpack<word_t, W>(true, high_parts, high_word_beats, high_words));
    PROCESS(bisort_prober_scan(false, step_log2, low_pending, low_words, low_positions));
    PROCESS(bisort_prober_scan(true, step_log2, high_pending, high_words, high_positions));
    PROCESS(pack<row_t, 1>(true, job.out_words, low_positions, low_chunks));
    PROCESS(pack<row_t, 1>(true, job.out_ids, high_positions, high_chunks));
    PROCESS(store<row_t>(starts_port, job.out_words, job.b_count, low_chunks));
    PROCESS(store<row_t>(ends_port, job.out_ids, job.b_count, high_chunks));
}

}  // namespace

ap_uint<8> bisort_engine_check(ap_uint<8> opcode, const ap_uint<32> job[JOB_WORDS]) { return check(opcode, read_job(job)); }

void bisort_engine_on(
    chip_t& chip, ap_uint<8> opcode, const ap_uint<32> job[JOB_WORDS], const port_t* a_words, const port_t* a_ids,
    const port_t* b_words, const port_t* b_ids, const port_t* index_in, port_t* out_words, port_t* out_ids, port_t* index_out,
    done_t& done) {
    const job_t given = read_job(job);
    done = done_t();
    done.code = check(opcode, given);
    if (done.code != ERR_OK) return;
    if (opcode == OP_MERGE) {
        indexed_t indexed;
        merge(given, a_words, a_ids, b_words, b_ids, out_words, out_ids, index_out, done.merged, indexed);
        done.indexed = indexed.rows;
        done.samples = given.with_index ? indexed.samples : ap_uint<32>(0);
    } else if (opcode == OP_INDEX) {
        indexed_t indexed;
        index(given, a_words, index_out, indexed);
        done.indexed = indexed.rows;
        done.samples = indexed.samples;
    } else {
        const ap_uint<32> samples = samples_of(given.a_count, given.step_log2);
        const bool resident = given.keep && chip.loaded && chip.address == given.index && chip.samples == samples;
        probed_t low, high;
        // The id port of run a reads words too: lower and upper bounds read their partitions independently.
        probe(given, !resident, samples, chip, a_words, a_ids, b_words, b_ids, index_in, out_words, out_ids, low, high);
        chip.loaded = true;
        chip.address = given.index;
        chip.samples = samples;
        done.low = low.rows;
        done.high = high.rows;
        done.low_partitions = low.partitions;
        done.high_partitions = high.partitions;
        done.loaded = resident ? ap_uint<32>(0) : samples;
    }
}

// The engine as a kernel: `command` has the opcode and the parameters in its first words, `result` gets the fields of done_t in theirs.
void bisort_engine(
    const port_t* command, port_t* result, const port_t* a_words, const port_t* a_ids, const port_t* b_words,
    const port_t* b_ids, const port_t* index_in, port_t* out_words, port_t* out_ids, port_t* index_out) {
#pragma HLS INTERFACE m_axi port=command bundle=command offset=slave max_read_burst_length=16
#pragma HLS INTERFACE m_axi port=result bundle=command offset=slave max_write_burst_length=16
#pragma HLS INTERFACE m_axi port=a_words bundle=a_words offset=slave max_read_burst_length=16
#pragma HLS INTERFACE m_axi port=a_ids bundle=a_ids offset=slave max_read_burst_length=16
#pragma HLS INTERFACE m_axi port=b_words bundle=b_words offset=slave max_read_burst_length=16
#pragma HLS INTERFACE m_axi port=b_ids bundle=b_ids offset=slave max_read_burst_length=16
#pragma HLS INTERFACE m_axi port=index_in bundle=index_in offset=slave max_read_burst_length=16
#pragma HLS INTERFACE m_axi port=out_words bundle=out_words offset=slave max_write_burst_length=16
#pragma HLS INTERFACE m_axi port=out_ids bundle=out_ids offset=slave max_write_burst_length=16
#pragma HLS INTERFACE m_axi port=index_out bundle=index_out offset=slave max_write_burst_length=16
#pragma HLS INTERFACE s_axilite port=return
    static chip_t chip;
    ap_uint<32> words[COMMAND_BEATS * BEAT_WORDS];
#pragma HLS ARRAY_PARTITION variable=words complete
command:
    for (int i = 0; i < COMMAND_BEATS; i++) {
#pragma HLS PIPELINE II=1
        const port_t beat = command[i];
        for (int k = 0; k < BEAT_WORDS; k++) {
#pragma HLS UNROLL
            words[i * BEAT_WORDS + k] = ap_uint<32>(beat.range(k * 32 + 31, k * 32));
        }
    }
    done_t done;
    bisort_engine_on(
        chip, words[0], words + 1, a_words, a_ids, b_words, b_ids, index_in, out_words, out_ids, index_out, done);
    port_t beat = port_t();
    const ap_uint<32> fields[DONE_WORDS] = {
        done.code, done.merged, done.indexed, done.samples, done.low, done.high, done.low_partitions, done.high_partitions,
        done.loaded,
    };
#pragma HLS ARRAY_PARTITION variable=fields complete
    for (int k = 0; k < DONE_WORDS; k++) {
#pragma HLS UNROLL
        beat.range(k * 32 + 31, k * 32) = fields[k];
    }
    result[0] = beat;
}
