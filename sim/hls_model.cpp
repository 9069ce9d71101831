// Implements the C ABI of model.h with the HLS engine: registers, command queue and memory around the kernel of hls/bisort_engine.cpp.
//
// C simulation: `mr_run` executes each command completely, and there is no clock. Registers are those of hw/rtl/bisort_registers.sv;
// registers that count cycles, port beats or stalls, and the CRCs, read 0, and so do `mr_cycles` and `mr_busy`. Of the memory model only
// cells and size are used; a command that would access addresses beyond the memory starts nothing and ends with AXI_ERROR.

#include "model.h"

#include <deque>
#include <memory>
#include <string>

#include "bisort_engine.h"

namespace {

using namespace bisort_abi;

constexpr uint32_t QUEUE = 4;
constexpr uint32_t SHAPE = INDEX_LOG2 << 24 | W << 16 | ID_W << 8 | KEY_W;
constexpr uint32_t UNITS = QUEUE << 24 | 1 << 16 | 1 << 8 | 1;
constexpr uint32_t PORT = PORT_W / 8;

struct Job {
    uint8_t opcode;
    ap_uint<32> words[JOB_WORDS];

    uint64_t at(uint32_t offset, int words_ = 2) const {
        const ap_uint<32>* word = words + (offset - REG_A_WORDS) / 4;
        return words_ == 1 ? uint64_t(word[0]) : uint64_t(word[0]) | uint64_t(word[1]) << 32;
    }
};

class Model {
  public:
    explicit Model(const mr_memory& memory) : memory_(memory), chip_(new chip_t()) {}

    const char* error() const { return error_.c_str(); }

    void write(uint32_t offset, uint32_t value) {
        const uint32_t place = (offset - REG_A_WORDS) / 4;
        if (offset >= REG_A_WORDS && place < JOB_WORDS) staged_.words[place] = value;
        else if (offset == REG_IRQ_ENABLE) irq_enable_ = value & 1;
        else if (offset == REG_ERROR) last_error_ = ERR_OK;
        else if (offset == REG_RESULT) drop_result();
        else if (offset == REG_RESET && (value & 1)) reset();
        else if (offset == REG_COMMAND) queue(value & 255);
    }

    uint32_t read(uint32_t offset) const {
        const uint32_t place = (offset - REG_A_WORDS) / 4;
        if (offset >= REG_A_WORDS && place < JOB_WORDS) return staged_.words[place];
        switch (offset) {
            case REG_MAGIC: return MAGIC_VALUE;
            case REG_VERSION: return VERSION_VALUE;
            case REG_BUILD_HASH: return uint32_t(BUILD_HASH);
            case REG_BUILD_HASH + 4: return uint32_t(uint64_t(BUILD_HASH) >> 32);
            case REG_SHAPE: return SHAPE;
            case REG_UNITS: return UNITS;
            case REG_PORT: return PORT;
            case REG_STATUS:
                return uint32_t(jobs_.size()) << 8 | uint32_t(!results_.empty()) << 2 | uint32_t(jobs_.size() == QUEUE) << 1;
            case REG_ERROR: return last_error_;
            case REG_IRQ_ENABLE: return irq_enable_;
            case REG_RESULT: return results_.empty() ? 0 : 1u << 31 | (number_ & 255) << 16 | results_.front();
            case REG_COMMANDS: return commands_;
            case REG_INDEX_ROWS: return total_.loaded;
            case REG_MERGER_ROWS: return total_.merged;
            case REG_INDEXER_ROWS: return total_.indexed;
            case REG_SAMPLES: return total_.samples;
            case REG_LOW_ROWS: return total_.low;
            case REG_HIGH_ROWS: return total_.high;
            case REG_LOW_PARTITIONS: return total_.low_partitions;
            case REG_HIGH_PARTITIONS: return total_.high_partitions;
            default: return 0;
        }
    }

    // Runs until the interrupt is high.
    int run() {
        while (!(irq_enable_ && !results_.empty())) {
            if (jobs_.empty() || results_.size() == QUEUE) {
                error_ = jobs_.empty() ? "no command is queued" : "no result was taken";
                return MR_HANG;
            }
            const Job job = jobs_.front();
            jobs_.pop_front();
            try {
                work(job);
            } catch (const csim::Standstill& standstill) {
                chip_->loaded = false;
                error_ = standstill.what();
                return MR_HANG;
            }
        }
        return MR_DONE;
    }

  private:
    void queue(uint8_t opcode) {
        if (jobs_.size() == QUEUE) {
            last_error_ = ERR_QUEUE_FULL;
            return;
        }
        staged_.opcode = opcode;
        jobs_.push_back(staged_);
    }

    void reset() {    // nothing is at work between two calls, so nothing is waited for
        jobs_.clear();
        results_.clear();
    }

    void drop_result() {
        if (results_.empty()) return;
        results_.pop_front();
        number_++;
    }

    void work(const Job& job) {
        done_t done = done_t();
        auto* cells = reinterpret_cast<port_t*>(memory_.cells);
        // Errors of the command itself are reported before errors of its pointers.
        if (bisort_engine_check(job.opcode, job.words) == ERR_OK && !inside(job)) {
            done.code = ERR_AXI_ERROR;
            chip_->loaded = false;
        } else {
            bisort_engine_on(*chip_, job.opcode, job.words, cells, cells, cells, cells, cells, cells, cells, cells, done);
        }
        add(done);
        commands_++;
        if (done.code != ERR_OK) last_error_ = done.code;
        results_.push_back(uint32_t(job.opcode) << 8 | uint32_t(done.code));
    }

    bool holds(uint64_t address, uint64_t count, uint64_t bytes) const {
        return address <= memory_.bytes && count <= (memory_.bytes - address) / bytes;
    }

    // Whether all arrays of a command are within the memory.
    bool inside(const Job& job) const {
        constexpr uint64_t WORD = KEY_W / 8, ID = ID_W / 8;
        const uint64_t a = job.at(REG_A_COUNT, 1), b = job.at(REG_B_COUNT, 1), flags = job.at(REG_FLAGS, 1);
        const uint64_t merged = job.opcode == OP_MERGE ? a + b : a, step_log2 = job.at(REG_STEP_LOG2, 1) & 31;
        const uint64_t samples = (merged + (uint64_t(1) << step_log2) - 1) >> step_log2;
        const bool index = holds(job.at(REG_INDEX), samples, WORD), words = holds(job.at(REG_A_WORDS), a, WORD);
        if (job.opcode == OP_INDEX) return words && index;
        const bool low = holds(job.at(REG_B_WORDS), b, WORD);
        if (job.opcode == OP_PROBE)
            return words && index && low && (flags >> FLAG_BAND & 1 || holds(job.at(REG_B_IDS), b, WORD)) &&
                   holds(job.at(REG_OUT_WORDS), b, ID) && holds(job.at(REG_OUT_IDS), b, ID);
        return words && low && holds(job.at(REG_A_IDS), a, ID) && holds(job.at(REG_B_IDS), b, ID) &&
               holds(job.at(REG_OUT_WORDS), merged, WORD) && holds(job.at(REG_OUT_IDS), merged, ID) &&
               (!(flags >> FLAG_INDEX & 1) || index);
    }

    void add(const done_t& done) {
        total_.merged += done.merged;
        total_.indexed += done.indexed;
        total_.samples += done.samples;
        total_.low += done.low;
        total_.high += done.high;
        total_.low_partitions += done.low_partitions;
        total_.high_partitions += done.high_partitions;
        total_.loaded += done.loaded;
    }

    mr_memory memory_;
    std::unique_ptr<chip_t> chip_;
    Job staged_ = Job();
    std::deque<Job> jobs_;
    std::deque<uint32_t> results_;    // opcode and error code, as RESULT shows them
    done_t total_ = done_t();
    uint32_t irq_enable_ = 0, last_error_ = ERR_OK, number_ = 0, commands_ = 0;
    std::string error_;
};

Model& of(void* model) { return *static_cast<Model*>(model); }

}  // namespace

void* mr_create(const mr_memory* memory) { return new Model(*memory); }

void mr_destroy(void* model) { delete static_cast<Model*>(model); }

const char* mr_error(void* model) { return of(model).error(); }

int mr_reg_write(void* model, const uint32_t* pairs, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) of(model).write(pairs[2 * i], pairs[2 * i + 1]);
    return MR_DONE;
}

int mr_reg_read(void* model, const uint32_t* offsets, uint32_t* values, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) values[i] = of(model).read(offsets[i]);
    return MR_DONE;
}

int mr_run(void* model, uint64_t, uint64_t) { return of(model).run(); }

uint64_t mr_cycles(void*) { return 0; }

uint64_t mr_busy(void*, uint32_t) { return 0; }
