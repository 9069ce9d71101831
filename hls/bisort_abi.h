// Made from hw/abi.toml by `python -m millrace.hw.abi --write`; do not edit.
// Registers, opcodes, flags and error codes of the bisort engine.

#ifndef MILLRACE_BISORT_ABI_H
#define MILLRACE_BISORT_ABI_H

#include <cstdint>

namespace bisort_abi {
constexpr std::uint32_t MAGIC_VALUE = 0x4D524253;  // what MAGIC reads
constexpr std::uint32_t VERSION_VALUE = 0x00020001;  // what VERSION reads
constexpr std::uint32_t ADDRESS_BITS = 0x0000000C;  // of the AXI4-Lite port
constexpr std::uint32_t MAX_LENGTH = 0x80000000;  // the most elements of an array
constexpr std::uint32_t MIN_STEP_LOG2 = 0x00000003;  // a partition has at least 2**this words
constexpr std::uint32_t OP_MERGE = 0x00000001;  // merge two sorted runs into one; with flag INDEX also sample the merged run
constexpr std::uint32_t OP_INDEX = 0x00000002;  // sample a run: INDEX[i] = A_WORDS[i << STEP_LOG2]
constexpr std::uint32_t OP_PROBE = 0x00000003;  // look ascending bounds up in a run through its index
constexpr std::uint32_t FLAG_INDEX = 0x00000000;  // bit; MERGE: write the index of the merged run too
constexpr std::uint32_t FLAG_BAND = 0x00000001;  // bit; PROBE: B_WORDS are keys; bounds are key - BELOW and key + ABOVE, held within LEAST and MOST
constexpr std::uint32_t FLAG_KEEP = 0x00000002;  // bit; PROBE: memory at INDEX is unchanged since the last load; if it is on the chip, do not load it again
constexpr std::uint32_t FLAG_HOLD = 0x00000003;  // bit; the next command begins only when this one's result is dropped: until then checksums stay
constexpr std::uint32_t ERR_OK = 0x00000000;  // no error
constexpr std::uint32_t ERR_UNKNOWN_OPCODE = 0x00000001;  // no such opcode
constexpr std::uint32_t ERR_ZERO_LENGTH = 0x00000002;  // nothing to merge, to sample, to probe with, or to probe in
constexpr std::uint32_t ERR_UNALIGNED = 0x00000003;  // a pointer is not a multiple of its element's size
constexpr std::uint32_t ERR_OVER_LIMIT = 0x00000004;  // a length, or the sum of both, is above 2**31
constexpr std::uint32_t ERR_BAD_SLICE = 0x00000005;  // the slots' ends fall, or do not end at the lengths
constexpr std::uint32_t ERR_BAD_STEP = 0x00000006;  // STEP_LOG2 is not 3 to 31
constexpr std::uint32_t ERR_INDEX_TOO_LARGE = 0x00000007;  // the index has more samples than fit on the chip
constexpr std::uint32_t ERR_AXI_ERROR = 0x00000008;  // the memory answered with an error; results are void
constexpr std::uint32_t ERR_QUEUE_FULL = 0x00000009;  // a command was written while the queue was full, and is lost
constexpr std::uint32_t ERR_BAD_ADDRESS = 0x0000000A;  // a pointer has more bits than the engine has for addresses (ADDR_W)
constexpr std::uint32_t REG_MAGIC = 0x00000000;  // 32 bits, ro
constexpr std::uint32_t REG_VERSION = 0x00000004;  // 32 bits, ro
constexpr std::uint32_t REG_BUILD_HASH = 0x00000008;  // 64 bits, ro
constexpr std::uint32_t REG_SHAPE = 0x00000010;  // 32 bits, ro
constexpr std::uint32_t REG_UNITS = 0x00000014;  // 32 bits, ro
constexpr std::uint32_t REG_PORT = 0x00000018;  // 32 bits, ro
constexpr std::uint32_t REG_COMMAND = 0x00000020;  // 32 bits, wo
constexpr std::uint32_t REG_STATUS = 0x00000024;  // 32 bits, ro
constexpr std::uint32_t REG_ERROR = 0x00000028;  // 32 bits, rw
constexpr std::uint32_t REG_IRQ_ENABLE = 0x0000002C;  // 32 bits, rw
constexpr std::uint32_t REG_RESULT = 0x00000030;  // 32 bits, rw
constexpr std::uint32_t REG_RESULT_CYCLES = 0x00000034;  // 32 bits, ro
constexpr std::uint32_t REG_RESET = 0x00000038;  // 32 bits, wo
constexpr std::uint32_t REG_CYCLES = 0x00000040;  // 64 bits, ro
constexpr std::uint32_t REG_COMMANDS = 0x00000048;  // 32 bits, ro
constexpr std::uint32_t REG_INDEX_ROWS = 0x0000004C;  // 32 bits, ro
constexpr std::uint32_t REG_INDEX_CRC = 0x00000050;  // 32 bits, ro
constexpr std::uint32_t REG_A_WORDS = 0x00000100;  // 64 bits, rw
constexpr std::uint32_t REG_A_IDS = 0x00000108;  // 64 bits, rw
constexpr std::uint32_t REG_B_WORDS = 0x00000110;  // 64 bits, rw
constexpr std::uint32_t REG_B_IDS = 0x00000118;  // 64 bits, rw
constexpr std::uint32_t REG_OUT_WORDS = 0x00000120;  // 64 bits, rw
constexpr std::uint32_t REG_OUT_IDS = 0x00000128;  // 64 bits, rw
constexpr std::uint32_t REG_INDEX = 0x00000130;  // 64 bits, rw
constexpr std::uint32_t REG_BELOW = 0x00000138;  // 64 bits, rw
constexpr std::uint32_t REG_ABOVE = 0x00000140;  // 64 bits, rw
constexpr std::uint32_t REG_LEAST = 0x00000148;  // 64 bits, rw
constexpr std::uint32_t REG_MOST = 0x00000150;  // 64 bits, rw
constexpr std::uint32_t REG_A_COUNT = 0x00000158;  // 32 bits, rw
constexpr std::uint32_t REG_B_COUNT = 0x0000015C;  // 32 bits, rw
constexpr std::uint32_t REG_STEP_LOG2 = 0x00000160;  // 32 bits, rw
constexpr std::uint32_t REG_FLAGS = 0x00000164;  // 32 bits, rw
constexpr std::uint32_t REG_SLOT_A = 0x00000180;  // 32 bits, rw of slot 0, others 8 bytes apart
constexpr std::uint32_t REG_SLOT_B = 0x00000184;  // 32 bits, rw of slot 0, others 8 bytes apart
constexpr std::uint32_t REG_MERGER_ROWS = 0x00000400;  // 32 bits, ro of cluster 0, others 64 bytes apart
constexpr std::uint32_t REG_INDEXER_ROWS = 0x00000404;  // 32 bits, ro of cluster 0, others 64 bytes apart
constexpr std::uint32_t REG_SAMPLES = 0x00000408;  // 32 bits, ro of cluster 0, others 64 bytes apart
constexpr std::uint32_t REG_READ_BEATS = 0x0000040C;  // 32 bits, ro of cluster 0, others 64 bytes apart
constexpr std::uint32_t REG_WRITE_BEATS = 0x00000410;  // 32 bits, ro of cluster 0, others 64 bytes apart
constexpr std::uint32_t REG_STARVED = 0x00000414;  // 32 bits, ro of cluster 0, others 64 bytes apart
constexpr std::uint32_t REG_BLOCKED = 0x00000418;  // 32 bits, ro of cluster 0, others 64 bytes apart
constexpr std::uint32_t REG_PORT_WAITS = 0x0000041C;  // 32 bits, ro of cluster 0, others 64 bytes apart
constexpr std::uint32_t REG_A_WORDS_CRC = 0x00000420;  // 32 bits, ro of cluster 0, others 64 bytes apart
constexpr std::uint32_t REG_A_IDS_CRC = 0x00000424;  // 32 bits, ro of cluster 0, others 64 bytes apart
constexpr std::uint32_t REG_B_WORDS_CRC = 0x00000428;  // 32 bits, ro of cluster 0, others 64 bytes apart
constexpr std::uint32_t REG_B_IDS_CRC = 0x0000042C;  // 32 bits, ro of cluster 0, others 64 bytes apart
constexpr std::uint32_t REG_OUT_WORDS_CRC = 0x00000430;  // 32 bits, ro of cluster 0, others 64 bytes apart
constexpr std::uint32_t REG_OUT_IDS_CRC = 0x00000434;  // 32 bits, ro of cluster 0, others 64 bytes apart
constexpr std::uint32_t REG_OUT_INDEX_CRC = 0x00000438;  // 32 bits, ro of cluster 0, others 64 bytes apart
constexpr std::uint32_t REG_LOW_ROWS = 0x00000800;  // 32 bits, ro of pair 0, others 64 bytes apart
constexpr std::uint32_t REG_HIGH_ROWS = 0x00000804;  // 32 bits, ro of pair 0, others 64 bytes apart
constexpr std::uint32_t REG_LOW_PARTITIONS = 0x00000808;  // 32 bits, ro of pair 0, others 64 bytes apart
constexpr std::uint32_t REG_HIGH_PARTITIONS = 0x0000080C;  // 32 bits, ro of pair 0, others 64 bytes apart
constexpr std::uint32_t REG_LOW_STARVED = 0x00000810;  // 32 bits, ro of pair 0, others 64 bytes apart
constexpr std::uint32_t REG_HIGH_STARVED = 0x00000814;  // 32 bits, ro of pair 0, others 64 bytes apart
constexpr std::uint32_t REG_LOW_CRC = 0x00000820;  // 32 bits, ro of pair 0, others 64 bytes apart
constexpr std::uint32_t REG_HIGH_CRC = 0x00000824;  // 32 bits, ro of pair 0, others 64 bytes apart
constexpr std::uint32_t REG_STARTS_CRC = 0x00000828;  // 32 bits, ro of pair 0, others 64 bytes apart
constexpr std::uint32_t REG_ENDS_CRC = 0x0000082C;  // 32 bits, ro of pair 0, others 64 bytes apart
}  // namespace bisort_abi

#endif
