"""The recorded results of synthesis: `hw/resources.json`, its tables in docs/internals/fpga-measured.md, and targets.

`millrace hw synth --write` writes both files; a test synthesises again and compares with the record. Limit: works only
in a checkout, because a wheel contains no documents. The paper's numbers are those of its Table I (PanJoin, V-B).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / "hw" / "resources.json"
DOCUMENT = ROOT / "docs" / "internals" / "fpga-measured.md"
BEGIN, END = "<!-- synthesis: made by `millrace hw synth --write` -->\n", "<!-- synthesis: end -->\n"
PAPER_ALMS, PAPER_BRAMS, PAPER_MHZ = 178_647, 848, 252.7
MAX_ALMS = PAPER_ALMS // 8
MIN_MHZ = {1: 100, 4: 90}
MAX_RATIO = 8
UNITS = {"xilinx": ("LUT6", "RAMB36"), "intel": ("ALM", "M10K"), "ecp5": ("LUT4", "EBR")}
"""The logic and memory units of each FPGA family."""
ENGINE, CONTEXT = "bisort_engine", "merger_context"


@dataclass(frozen=True)
class Cost:
    """The resources that a design uses on an FPGA family, in the family's own units."""

    design: str
    lanes: int
    target: str
    luts: int
    registers: int
    brams: float


@dataclass(frozen=True)
class Clock:
    """The lowest of the clocks that nextpnr found with several seeds."""

    design: str
    lanes: int
    key_bits: int
    device: str
    mhz: float


@dataclass(frozen=True)
class Resources:
    """All results, and the tools that produced them."""

    tools: dict[str, str]
    costs: list[Cost]
    clocks: list[Clock]


@dataclass(frozen=True)
class ResourceTarget:
    """A measured number, its upper or lower limit, and whether it meets the limit."""

    name: str
    reached: float
    limit: float
    met: bool


def resource_targets(found: Resources) -> list[ResourceTarget]:
    """All targets for which there are results."""
    return [*_area_targets(found.costs), *_clock_targets(found.clocks)]


def _area_targets(costs: Sequence[Cost]) -> Iterator[ResourceTarget]:
    for cost in costs:
        if cost.design == ENGINE and cost.target == "intel":
            name = "ALMs of the engine with 8 mergers and 8 probers"
            yield ResourceTarget(name, cost.luts, MAX_ALMS, cost.luts <= MAX_ALMS)
    for target in UNITS:
        luts = {cost.lanes: cost.luts for cost in costs if cost.design == CONTEXT and cost.target == target}
        if {1, 4} <= set(luts):
            ratio = luts[4] / luts[1]
            yield ResourceTarget(f"merger with FIFOs, W=4 over W=1, {target}", ratio, MAX_RATIO, ratio <= MAX_RATIO)


def _clock_targets(clocks: Sequence[Clock]) -> Iterator[ResourceTarget]:
    for clock in clocks:
        minimum = MIN_MHZ[clock.lanes]
        name = f"MHz of the merger, W={clock.lanes}, keys of {clock.key_bits} bits"
        yield ResourceTarget(name, clock.mhz, minimum, clock.mhz >= minimum)


def read() -> Resources:
    """Read the record."""
    text = json.loads(RECORD.read_text(encoding="utf-8"))
    costs, clocks = [Cost(**cost) for cost in text["costs"]], [Clock(**clock) for clock in text["clocks"]]
    return Resources(text["tools"], costs, clocks)


def write(found: Resources) -> None:
    """Write the record, and the tables in the document."""
    RECORD.write_text(json.dumps(asdict(found), indent=1) + "\n", encoding="utf-8")
    text = DOCUMENT.read_text(encoding="utf-8")
    DOCUMENT.write_text(with_tables(text, tables(found)), encoding="utf-8")


def with_tables(text: str, made: str) -> str:
    """Replace the tables between the markers of a document."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{made}{END}{after}"


def tables(found: Resources) -> str:
    """Markdown: costs, the paper's Table I, clocks and targets."""
    heads = [f"{target}: {luts} | registers | {brams}" for target, (luts, brams) in UNITS.items()]
    lines = [
        "",
        f"By {', '.join(f'{name} {version}' for name, version in found.tools.items())}; keys and ids of 32 bits:",
        "",
    ]
    lines += [f"| design | W | {' | '.join(heads)} |", "| --- | ---: |" + " ---: |" * (3 * len(UNITS))]
    for design, lanes in dict.fromkeys((cost.design, cost.lanes) for cost in found.costs):
        cells = [_cells(found.costs, design, lanes, target) for target in UNITS]
        lines.append(f"| `{design}` | {lanes} | {' | '.join(cells)} |")
    lines += ["", *_paper(found.costs), "", *_timed(found.clocks), ""]
    lines += ["| bar | reached | limit | |", "| --- | ---: | ---: | --- |"]
    lines += [
        f"| {one.name} | {one.reached:,.1f} | {one.limit:,.1f} | {'met' if one.met else '**missed**'} |"
        for one in resource_targets(found)
    ]
    return "\n".join([*lines, "", ""])


def _cells(costs: Sequence[Cost], design: str, lanes: int, target: str) -> str:
    for cost in costs:
        if (cost.design, cost.lanes, cost.target) == (design, lanes, target):
            return f"{cost.luts:,} | {cost.registers:,} | {cost.brams:g}"
    return "- | - | -"


def _paper(costs: Sequence[Cost]) -> list[str]:
    engine = [cost for cost in costs if cost.design == ENGINE and cost.target == "intel"]
    return [
        "| | logic | block RAM | clock |",
        "| --- | ---: | ---: | ---: |",
        f"| the paper (Table I), all on the chip | {PAPER_ALMS:,} ALM | {PAPER_BRAMS} M20K | {PAPER_MHZ} MHz |",
        *(f"| here: the engine alone | {cost.luts:,} ALM | {cost.brams:g} M10K | not placed |" for cost in engine),
    ]


def _timed(clocks: Sequence[Clock]) -> list[str]:
    rows = [f"| `{c.design}` | {c.lanes} | {c.key_bits} | {c.device} | {c.mhz:.1f} |" for c in clocks]
    return ["| placed and routed | W | key bits | device | MHz |", "| --- | ---: | ---: | --- | ---: |", *rows]
