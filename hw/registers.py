"""Registers, opcodes, flags and error codes of `bisort_engine`.

Made from hw/abi.toml by `python -m millrace.hw.abi --write`; do not edit.
"""

from __future__ import annotations

MAGIC_VALUE = 0x4D524253
VERSION_VALUE = 0x20001
ADDRESS_BITS = 0xC
MAX_LENGTH = 0x80000000
MIN_STEP_LOG2 = 0x3
OP_MERGE = 0x1
OP_INDEX = 0x2
OP_PROBE = 0x3
FLAG_INDEX = 0x0
FLAG_BAND = 0x1
FLAG_KEEP = 0x2
FLAG_HOLD = 0x3
ERR_OK = 0x0
ERR_UNKNOWN_OPCODE = 0x1
ERR_ZERO_LENGTH = 0x2
ERR_UNALIGNED = 0x3
ERR_OVER_LIMIT = 0x4
ERR_BAD_SLICE = 0x5
ERR_BAD_STEP = 0x6
ERR_INDEX_TOO_LARGE = 0x7
ERR_AXI_ERROR = 0x8
ERR_QUEUE_FULL = 0x9
ERR_BAD_ADDRESS = 0xA
REG_MAGIC = 0x0
REG_VERSION = 0x4
REG_BUILD_HASH = 0x8
REG_SHAPE = 0x10
REG_UNITS = 0x14
REG_PORT = 0x18
REG_COMMAND = 0x20
REG_STATUS = 0x24
REG_ERROR = 0x28
REG_IRQ_ENABLE = 0x2C
REG_RESULT = 0x30
REG_RESULT_CYCLES = 0x34
REG_RESET = 0x38
REG_CYCLES = 0x40
REG_COMMANDS = 0x48
REG_INDEX_ROWS = 0x4C
REG_INDEX_CRC = 0x50
REG_A_WORDS = 0x100
REG_A_IDS = 0x108
REG_B_WORDS = 0x110
REG_B_IDS = 0x118
REG_OUT_WORDS = 0x120
REG_OUT_IDS = 0x128
REG_INDEX = 0x130
REG_BELOW = 0x138
REG_ABOVE = 0x140
REG_LEAST = 0x148
REG_MOST = 0x150
REG_A_COUNT = 0x158
REG_B_COUNT = 0x15C
REG_STEP_LOG2 = 0x160
REG_FLAGS = 0x164
REG_SLOT_A = 0x180
REG_SLOT_B = 0x184
REG_MERGER_ROWS = 0x400
REG_INDEXER_ROWS = 0x404
REG_SAMPLES = 0x408
REG_READ_BEATS = 0x40C
REG_WRITE_BEATS = 0x410
REG_STARVED = 0x414
REG_BLOCKED = 0x418
REG_PORT_WAITS = 0x41C
REG_A_WORDS_CRC = 0x420
REG_A_IDS_CRC = 0x424
REG_B_WORDS_CRC = 0x428
REG_B_IDS_CRC = 0x42C
REG_OUT_WORDS_CRC = 0x430
REG_OUT_IDS_CRC = 0x434
REG_OUT_INDEX_CRC = 0x438
REG_LOW_ROWS = 0x800
REG_HIGH_ROWS = 0x804
REG_LOW_PARTITIONS = 0x808
REG_HIGH_PARTITIONS = 0x80C
REG_LOW_STARVED = 0x810
REG_HIGH_STARVED = 0x814
REG_LOW_CRC = 0x820
REG_HIGH_CRC = 0x824
REG_STARTS_CRC = 0x828
REG_ENDS_CRC = 0x82C

STRIDES = {
    "SLOT_A": 8,
    "SLOT_B": 8,
    "MERGER_ROWS": 64,
    "INDEXER_ROWS": 64,
    "SAMPLES": 64,
    "READ_BEATS": 64,
    "WRITE_BEATS": 64,
    "STARVED": 64,
    "BLOCKED": 64,
    "PORT_WAITS": 64,
    "A_WORDS_CRC": 64,
    "A_IDS_CRC": 64,
    "B_WORDS_CRC": 64,
    "B_IDS_CRC": 64,
    "OUT_WORDS_CRC": 64,
    "OUT_IDS_CRC": 64,
    "OUT_INDEX_CRC": 64,
    "LOW_ROWS": 64,
    "HIGH_ROWS": 64,
    "LOW_PARTITIONS": 64,
    "HIGH_PARTITIONS": 64,
    "LOW_STARVED": 64,
    "HIGH_STARVED": 64,
    "LOW_CRC": 64,
    "HIGH_CRC": 64,
    "STARTS_CRC": 64,
    "ENDS_CRC": 64,
}
"""Bytes between a repeated register of one slot, cluster or pair and that of the next."""

ERRORS = {
    0: "OK: no error",
    1: "UNKNOWN_OPCODE: no such opcode",
    2: "ZERO_LENGTH: nothing to merge, to sample, to probe with, or to probe in",
    3: "UNALIGNED: a pointer is not a multiple of its element's size",
    4: "OVER_LIMIT: a length, or the sum of both, is above 2**31",
    5: "BAD_SLICE: the slots' ends fall, or do not end at the lengths",
    6: "BAD_STEP: STEP_LOG2 is not 3 to 31",
    7: "INDEX_TOO_LARGE: the index has more samples than fit on the chip",
    8: "AXI_ERROR: the memory answered with an error; results are void",
    9: "QUEUE_FULL: a command was written while the queue was full, and is lost",
    10: "BAD_ADDRESS: a pointer has more bits than the engine has for addresses (ADDR_W)",
}
"""What an error code means."""
