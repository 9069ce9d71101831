"""Draws the pictures of the documents that show structure: `make pictures`, or `python -m tools.draw_pictures`.

Rooms, the way of a batch, a window of subwindows, the FPGA engine. Plain SVG, no libraries; a picture has its own
background and changes with the reader's colour scheme. The same source gives the same bytes, and a test compares them
with docs/images.
"""

from __future__ import annotations

from html import escape
from pathlib import Path

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"
STYLE = """
text{fill:#1d2433;font-family:system-ui,sans-serif;font-size:14px}
.small{font-size:12px;fill:#5a6478}.bold{font-weight:600}.unit{font-weight:600;font-size:12.5px}.mono{font-family:ui-monospace,monospace;font-size:12.5px}
.card{fill:#fcfcfd;stroke:#dfe3ea}.room{fill:#f1f4f9;stroke:#c9d2e0}
.user{fill:#dfeaf9;stroke:#7d9cc9}.host{fill:#f8ecd6;stroke:#caa869}.dev{fill:#e0f0dd;stroke:#84b07c}
.old{fill:#eceef2;stroke:#b9c0cc}.line{stroke:#5b6f91;stroke-width:1.6;fill:none}.soft{stroke-dasharray:5 4}
.tip{fill:#5b6f91}
@media (prefers-color-scheme:dark){
text{fill:#e6e9f0}.small{fill:#9aa5b8}.card{fill:#1b1f29;stroke:#323a4a}.room{fill:#232937;stroke:#3d475b}
.user{fill:#22395a;stroke:#5f86bd}.host{fill:#4a3a1c;stroke:#a98848}.dev{fill:#21422a;stroke:#5f9a63}
.old{fill:#2c323e;stroke:#515b6d}.line{stroke:#9fb4d6}.tip{fill:#9fb4d6}}
""".strip()


class Drawing:
    """Shapes on a card of a given size."""

    def __init__(self, title: str, width: int, height: int) -> None:
        """An empty card; the title is read aloud by screen readers."""
        self._size = width, height
        self._title = title
        self._parts: list[str] = []

    def box(self, x: float, y: float, w: float, h: float, kind: str, *lines: str, mono: bool = False) -> None:
        """A rounded box with centred lines: the first is bold, the others small (or in a fixed font)."""
        self._parts.append(f'<rect class="{kind}" x="{x}" y="{y}" width="{w}" height="{h}" rx="6"/>')
        top = y + h / 2 - (len(lines) - 1) * 8.5 + 5
        for number, line in enumerate(lines):
            look = (
                ("unit" if "isort_" in line or "axi_" in line else "bold")
                if number == 0
                else "mono small"
                if mono
                else "small"
            )
            self.text(x + w / 2, top + number * 17, line, look, "middle")

    def room(self, x: float, y: float, w: float, h: float, title: str, note: str = "") -> None:
        """A large box with its title in the corner."""
        self._parts.append(f'<rect class="room" x="{x}" y="{y}" width="{w}" height="{h}" rx="8"/>')
        self.text(x + 12, y + 21, title, "bold")
        if note:
            self.text(x + w - 12, y + 21, note, "small", "end")

    def text(self, x: float, y: float, words: str, look: str = "", anchor: str = "start") -> None:
        """One line of text."""
        self._parts.append(f'<text class="{look}" x="{x}" y="{y}" text-anchor="{anchor}">{escape(words)}</text>')

    def arrow(self, *points: tuple[float, float], soft: bool = False) -> None:
        """A line with a tip at its last point."""
        path = "M" + " L".join(f"{x} {y}" for x, y in points)
        look = "line soft" if soft else "line"
        self._parts.append(f'<path class="{look}" d="{path}" marker-end="url(#tip)"/>')

    def svg(self) -> str:
        """The picture."""
        width, height = self._size
        marker = (
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
            'markerUnits="userSpaceOnUse" orient="auto"><path class="tip" d="M0 0L8 4L0 8z"/></marker></defs>'
        )
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        )
        card = f'<rect class="card" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="10"/>'
        name = escape(self._title)
        parts = [f'{head}role="img" aria-label="{name}">', f"<title>{name}</title>", f"<style>{STYLE}</style>"]
        return "\n".join([*parts, marker, card, *self._parts, "</svg>", ""])


def rooms() -> str:
    """What users call, the host, and the devices."""
    d = Drawing("The rooms of Millrace: what users call, the host, and the devices", 860, 464)
    d.box(24, 20, 392, 44, "user", "Your Python program", "pyarrow · pandas · Polars · NumPy")
    d.box(444, 20, 392, 44, "user", "Your Spark job", "batch and streaming frames, classic or Connect")
    d.arrow((220, 64), (220, 92))
    d.arrow((640, 64), (640, 92))
    d.text(230, 83, "Arrow tables", "small")
    d.text(650, 83, "Arrow batches of a partition", "small")
    d.room(24, 92, 392, 96, "sdk/millrace", "what users call")
    d.text(40, 142, "join · WindowJoin · LiveJoin · knn_join", "mono")
    d.text(40, 166, "KnnJoin · OrderedIndex · ScaleGate", "mono")
    d.room(444, 92, 392, 96, "spark/", "runs in Spark's own workers")
    d.text(460, 142, "ms.join · ms.window_join · ms.knn_join", "mono")
    d.text(460, 166, "ms.lookup · ms.explain", "mono")
    d.arrow((444, 150), (416, 150))
    d.arrow((220, 188), (220, 216))
    d.room(
        24,
        216,
        812,
        106,
        "host/",
        "conditions, windows, join indexes, trees, the pipeline: all decisions are made here",
    )
    names = [
        ("condition", "SQL to key ranges"),
        ("windows", "rows by arrival or time"),
        ("index", "bisort, pim, spo, …"),
    ]
    names += [("matches", "ordered, exact"), ("HB+-Tree", "keys, ranges")]
    for number, (name, note) in enumerate(names):
        d.box(40 + number * 158, 252, 148, 54, "host", name, note)
    for x in (122, 328, 534, 740):
        d.arrow((x, 322), (x, 362))
    d.text(431, 346, "words and ranges, no payload", "small", "middle")
    devices = [("cpu", "Numba kernels", "all cores"), ("gpu/", "one source for", "OpenCL and CUDA")]
    devices += [("sim/", "rtl, hls: the FPGA", "simulated in process"), ("hw/", "boards: ULX3S,", "KV260, ZCU104")]
    for number, lines in enumerate(devices):
        d.box(24 + number * 206, 362, 194, 66, "dev", *lines)
    d.text(430, 450, "Every device gives the same bits, row order included.", "small", "middle")
    return d.svg()


def batch() -> str:
    """From an Arrow batch to a table of pairs."""
    d = Drawing("The way of a batch: columns, visible intervals, probes, matches, pairs", 860, 268)
    steps = [
        ("user", "batch", "an Arrow table"),
        ("host", "columns", "keys as words"),
        ("host", "intervals", "what a row sees"),
        ("host", "probes", "ranges of words"),
        ("host", "matches", "checked, in order"),
        ("user", "pairs", "an Arrow table"),
    ]
    for number, (kind, name, note) in enumerate(steps):
        x = 20 + number * 139
        d.box(x, 74, 126, 56, kind, name, note)
        if number and number != 4:
            d.arrow((x - 13, 102), (x, 102))
    d.box(437, 178, 126, 56, "dev", "index", "on any device")
    d.arrow((482, 130), (482, 178))
    d.arrow((563, 206), (639, 206), (639, 130))
    d.text(572, 226, "positions", "small")
    d.text(428, 160, "words", "small")
    d.arrow((83, 74), (83, 40), (778, 40), (778, 74), soft=True)
    d.text(430, 30, "payload stays on the host, and is gathered once", "small", "middle")
    d.text(20, 212, "A column is converted once. Rows wait here", "small")
    d.text(20, 229, "until no source can deliver an older one.", "small")
    return d.svg()


def subwindows() -> str:
    """PanJoin: chains of subwindows; insert into the own chain, probe the other."""
    d = Drawing("A window as a chain of subwindows: insert into the own, probe the other", 860, 330)
    for y, side in ((48, "r"), (214, "s")):
        d.text(24, 36 if side == "r" else 290, f"{side}'s window: a chain of subwindows, oldest on the left", "small")
        for number in range(4):
            x = 24 + number * 148
            kind = "old" if number == 0 else "dev" if number == 3 else "host"
            notes = ("expired rows", "full: one sorted run", "full: one sorted run", "runs and a buffer")
            d.box(x, y, 136, 58, kind, ("oldest", "subwindow", "subwindow", "newest")[number], notes[number])
    d.box(692, 48, 144, 58, "user", "new batch of r", "sorted once")
    d.arrow((692, 77), (604, 77))
    d.text(648, 66, "insert", "small", "middle")
    d.arrow((764, 106), (764, 158), (92, 158), (92, 214))
    for number in range(1, 4):
        d.arrow((92 + number * 148, 158), (92 + number * 148, 214))
    d.text(772, 136, "probe", "small")
    d.text(430, 150, "every subwindow of the other side, in sorted order", "small", "middle")
    d.text(
        24,
        304,
        "A subwindow is dropped in one piece; expired rows inside the oldest one are filtered from the answers.",
        "small",
    )
    d.text(646, 240, "Each has a structure:", "small")
    d.text(646, 258, "bisort: sorted runs", "small")
    d.text(646, 276, "wib, rap: wide leaves, partitions", "small")
    return d.svg()


def engine() -> str:
    """The FPGA's run engine."""
    d = Drawing("The FPGA engine: registers, sequencer, clusters of mergers and probers, memory", 860, 452)
    d.box(24, 40, 120, 52, "user", "host", "driver")
    d.arrow((144, 66), (196, 66))
    d.text(170, 34, "AXI4-Lite", "small", "middle")
    d.box(196, 40, 190, 52, "host", "bisort_registers", "queue, results, counters")
    d.arrow((386, 66), (430, 66))
    d.box(430, 40, 190, 52, "host", "bisort_sequencer", "checks, slices, waits")
    d.box(664, 40, 172, 52, "host", "axi_reader", "loads the on-chip index")
    d.arrow((620, 66), (664, 66))
    d.arrow((525, 92), (525, 124))
    d.arrow((750, 92), (750, 124))
    d.room(24, 124, 812, 214, "bisort_cluster 0", "1 to 16 clusters, each with its own memory port")
    rows = (
        (
            162,
            "MERGE",
            ("4 × axi_reader", "words, ids of a, b"),
            ("bisort_merger", "W tuples a cycle"),
            ("bisort_indexer", "samples"),
        ),
        (
            254,
            "PROBE",
            ("2 × axi_reader", "bounds"),
            ("bisort_boundary", "bands to bounds"),
            ("bisort_partitioner", "searches the index"),
        ),
    )
    for y, name, *units in rows:
        d.text(40, y + 32, name, "bold")
        for number, lines in enumerate(units):
            d.box(102 + number * 152, y, 140, 56, "dev", *lines)
            if number:
                d.arrow((90 + number * 152, y + 28), (102 + number * 152, y + 28))
    d.box(558, 254, 130, 56, "dev", "2 × bisort_prober", "scan partitions")
    d.arrow((546, 282), (558, 282))
    d.box(702, 162, 118, 56, "dev", "3 × axi_writer", "run, samples")
    d.arrow((546, 190), (702, 190))
    d.box(702, 254, 118, 56, "dev", "2 × axi_writer", "positions")
    d.arrow((688, 282), (702, 282))
    d.arrow((172, 218), (172, 236), (623, 236), (623, 254), soft=True)
    d.text(400, 232, "words of partitions", "small", "middle")
    d.arrow((430, 338), (430, 378))
    d.arrow((450, 378), (450, 338))
    d.text(462, 362, "AXI4, 128 · W bits", "small")
    d.box(230, 378, 400, 50, "old", "memory", "runs are two arrays: words, and ids")
    return d.svg()


PICTURES = {"rooms": rooms, "batch": batch, "subwindows": subwindows, "fpga-engine": engine}


def main() -> None:
    """Write all pictures."""
    for name, draw in PICTURES.items():
        (IMAGES / f"{name}.svg").write_text(draw())


if __name__ == "__main__":
    main()
