"""The proofs of stream units, DMA, arbiters and sequencer, and for each property a mutant of the RTL that breaks it.

A proof is a harness in `hw/formal` with the unit's parameters and the number of cycles from reset that it covers, for
every input within the unit's limits: bounded model checking, no induction. Widths are small, because the units only
compare and move data; `hw/formal/param_check.sv` replaces the one of `hw/rtl`, which would refuse them. Properties:

- stable: an offered beat stays unchanged until it is accepted;
- sorted: the output ascends, and follows the rules of streams;
- complete: nothing is lost, duplicated or changed;
- alive: no deadlock: data that can move do so within the cycles that the harness states.
"""

from __future__ import annotations

from dataclasses import dataclass, field

LABELS = {"stable": ("is_stable",), "sorted": ("is_sorted", "has_shape"), "alive": ("goes_on",)}
"""The assertions of each property, by their labels; all other assertions belong to `complete`."""


@dataclass(frozen=True)
class Mutant:
    """A mutant: a text that occurs once in a file of `hw/rtl`, its replacement, and the property that it breaks."""

    prop: str
    file: str
    before: str
    after: str


@dataclass(frozen=True)
class Proof:
    """A unit with small parameters, proven for `cycles`; its cover is reached within `cover_cycles`."""

    unit: str
    parameters: dict[str, int]
    cycles: int
    cover_cycles: int
    mutants: tuple[Mutant, ...] = field(default=())

    def __str__(self) -> str:
        return "-".join([self.unit, *(f"{name.lower()}{value}" for name, value in self.parameters.items())])


PROOFS = (
    Proof(
        "stream_fifo",
        {"WIDTH": 2, "DEPTH": 4},
        20,
        20,
        (
            Mutant(
                "stable", "stream_fifo.sv", "stored_reg != 0 && (!out_valid_reg || m_axis_tready);", "stored_reg != 0;"
            ),
            Mutant("complete", "stream_fifo.sv", "s_axis_tready = !stored_reg[ADDR_W];", "s_axis_tready = 1'b1;"),
            Mutant("alive", "stream_fifo.sv", "wire fetch = stored_reg != 0", "wire fetch = stored_reg[ADDR_W]"),
        ),
    ),
    Proof("bisort_merger", {"W": 1}, 12, 22),
    Proof(
        "bisort_merger",
        {"W": 2},
        11,
        18,
        (
            Mutant(
                "stable",
                "bisort_merger.sv",
                "stage_ready[k] = !valid_reg || stage_ready[k+1];",
                "stage_ready[k] = 1'b1;",
            ),
            Mutant("sorted", "bisort_merger.sv", "(!a_none[i] && a_first);", "(!a_none[i] && !a_first);"),
            Mutant("complete", "bisort_lane.sv", "assign space = !queued[2];", "assign space = 1'b1;"),
            Mutant(
                "alive",
                "bisort_merger.sv",
                "known = &a_valid && &b_valid;",
                "known = &a_valid && &b_valid && !finished;",
            ),
        ),
    ),
    Proof(
        "bisort_indexer",
        {"W": 2},
        11,
        16,
        (
            Mutant("stable", "bisort_indexer.sv", "(!valid_reg || m_axis_tready) && index_free", "index_free"),
            Mutant("sorted", "bisort_indexer.sv", "held_valid_reg ? held_reg : sample;", "sample;"),
            Mutant(
                "complete",
                "bisort_indexer.sv",
                "else if (ends) held_valid_reg <= fresh && held_valid_reg;",
                "else if (ends) held_valid_reg <= 1'b0;",
            ),
            Mutant(
                "alive", "bisort_indexer.sv", "flush_reg <= ends && fresh", "flush_reg <= flush_reg || ends && fresh"
            ),
        ),
    ),
    Proof(
        "bisort_boundary",
        {"KEY_W": 3},
        10,
        12,
        (
            Mutant(
                "stable", "bisort_boundary.sv", "low_move = !low_valid_reg || m_axis_low_tready;", "low_move = 1'b1;"
            ),
            Mutant("sorted", "bisort_boundary.sv", "low_sum_reg[KEY_W] || ", ""),
            Mutant("complete", "bisort_boundary.sv", "low_free = !low_sum_valid_reg || low_move;", "low_free = 1'b1;"),
            Mutant(
                "alive", "bisort_boundary.sv", "low_free && (!band || high_free)", "low_free && (!band || !high_free)"
            ),
        ),
    ),
    Proof(
        "bisort_partitioner",
        {"W": 2},
        16,
        18,
        (
            Mutant(
                "stable", "stream_fifo.sv", "stored_reg != 0 && (!out_valid_reg || m_axis_tready);", "stored_reg != 0;"
            ),
            Mutant("complete", "bisort_index_level.sv", "exists = !read_edge_reg || last_bit;", "exists = 1'b1;"),
            Mutant("sorted", "bisort_index_level.sv", "bound_reg <= read_bound_reg;", "bound_reg <= in_bound;"),
            Mutant("alive", "bisort_partitioner.sv", " - {{ROOM_LOG2{1'b0}}, give}", ""),
        ),
    ),
    Proof("bisort_prober", {"W": 1}, 11, 22),
    Proof(
        "bisort_prober",
        {"W": 2},
        11,
        20,
        (
            Mutant("stable", "bisort_prober.sv", "(!position_valid_reg || m_axis_tready) && ", ""),
            Mutant(
                "sorted", "bisort_prober.sv", "position_reg <= start_reg + within_reg;", "position_reg <= within_reg;"
            ),
            Mutant("complete", "bisort_prober.sv", "next_take = emit || !valid_reg;", "next_take = 1'b1;"),
            Mutant("alive", "bisort_prober.sv", "assign next_take = emit || !valid_reg;", "assign next_take = emit;"),
        ),
    ),
    Proof("axi_reader", {"W": 1, "QUEUE": 1}, 10, 22),
    Proof(
        "axi_reader",
        {"W": 2, "QUEUE": 2},
        12,
        22,
        (
            Mutant(
                "stable",
                "axi_reader.sv",
                "if (m_axi_arready) ar_valid_reg <= 1'b0;",
                "ar_valid_reg <= 1'b0;",
            ),
            Mutant("sorted", "axi_reader.sv", "both = {chunk, carry_reg};", "both = {carry_reg, chunk};"),
            Mutant("complete", "axi_reader.sv", "end_keep = ~({W{1'b1}} << end_lane << 1);", "end_keep = {W{1'b1}};"),
            Mutant("alive", "axi_reader.sv", ": {(FIFO_LOG2+1){beat_pop}};", ": {(FIFO_LOG2+1){1'b0}};"),
        ),
    ),
    Proof("axi_writer", {"W": 1}, 12, 24),
    Proof(
        "axi_writer",
        {"W": 2},
        12,
        20,
        (
            Mutant(
                "stable",
                "axi_writer.sv",
                "if (m_axi_awready) aw_valid_reg <= 1'b0;",
                "aw_valid_reg <= 1'b0;",
            ),
            Mutant("sorted", "axi_writer.sv", "push_last = final_chunk || &place_reg;", "push_last = final_chunk;"),
            Mutant("complete", "axi_writer.sv", "room = !beat_valid_reg || fifo_ready;", "room = 1'b1;"),
            Mutant("alive", "axi_writer.sv", "issue = whole_reg != 0", "issue = whole_reg[WHOLE_W-1]"),
        ),
    ),
    Proof(
        "axi_read_arbiter",
        {"PORTS": 3},
        12,
        14,
        (
            Mutant("stable", "axi_read_arbiter.sv", "free = (!valid_reg || m_axi_arready) && !hold;", "free = !hold;"),
            Mutant("complete", "axi_read_arbiter.sv", "if (begun != ended) open_reg", "if (begun) open_reg"),
            Mutant("alive", "round_robin.sv", "after = request & ({PORTS{1'b1}} << last << 1);", "after = request;"),
        ),
    ),
    Proof(
        "axi_write_arbiter",
        {"PORTS": 2},
        12,
        18,
        (
            Mutant("stable", "axi_write_arbiter.sv", "free = (!valid_reg || m_axi_awready) && ", "free = "),
            Mutant(
                "complete",
                "axi_write_arbiter.sv",
                "m_axi_wvalid && m_axi_wready && m_axi_wlast;",
                "m_axi_wvalid && m_axi_wready;",
            ),
            Mutant("alive", "round_robin.sv", "after = request & ({PORTS{1'b1}} << last << 1);", "after = request;"),
        ),
    ),
    Proof(
        "bisort_sequencer",
        {"CLUSTERS": 2},
        22,
        9,
        (
            Mutant("stable", "bisort_sequencer.sv", "default: if (m_result_tready) begin", "default: begin"),
            Mutant("complete", "bisort_sequencer.sv", "SETTLE: if (settled_reg) state_reg", "SETTLE: state_reg"),
            Mutant("alive", "bisort_sequencer.sv", "RUN: if (!busy) begin", "RUN: if (!busy && settled_reg) begin"),
        ),
    ),
)
