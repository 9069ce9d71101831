"""Bench `live`: index-based window joins tuple by tuple; the experiments of the PIM-Tree paper, section 5.

Both sides are interleaved tuple by tuple; two matches per tuple unless the case says otherwise; pairs emitted. One
thread, except in `threads-…`, `control-…`, `robin-…` (`live_threads.py`) and `drift-…`, which has two. Slices of large
windows are longer, so that each contains merges, and windows slide before the time is taken.

- `tuples-…`: `btree`, `im` and `pim` in windows of 2^16 to 2^23 (Figure 10a).
- `costs-…`: the cost equations beside measurements (`live_costs.py`); `memory-…` (11a, `live_memory.py`).
- `chain-…` chain length and variant (8b), `merge-…` merge ratio (9c, 9d), `subindexes-…` (8c), `task-…` task (10c),
  `matches-…` match rate (10b), `asymmetric-…` windows (11c), `rates-…` skewed and fluctuating rates (11b), `self-…`
  self-join (12c), `keys-…` distributions (12b), `drift-…` shifting Gaussian (13b).
- `latency-…`: microseconds from ring to ring (`live_latency.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from math import log2

from millrace.bench import live_costs, live_latency, live_memory, live_threads
from millrace.bench.harness import Case, Contender
from millrace.bench.live_workload import Engine, Keys, LiveWorkload
from millrace.bench.options import Options

WINDOWS = tuple(1 << power for power in range(16, 24))
MIDDLE = 1 << 20
"""The window of the cases that vary something else."""
MERGE_WINDOWS = (1 << 17, 1 << 20)
BATCH = 1 << 16
QUICK_WINDOWS, QUICK_MIDDLE, QUICK_BATCH = (1 << 10, 1 << 12), 1 << 12, 1 << 12
MERGE_RATIOS = tuple(2.0**-power for power in range(7))
SUBINDEXES = (1, 16, 256, 1024, 4096, 1 << 16)
LENGTHS = (2, 4, 8, 16)
TASKS = (1, 2, 4, 8, 16, 64)
RATES = (1 / 16, 1.0, 16.0, 128.0, 1024.0)
SHARES = (0.5, 0.75, 0.9, 0.99)
DRIFTS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
SHAPES: tuple[Keys, ...] = ("uniform", "gaussian", "gamma-3-3", "gamma-1-5")
ROBIN_WINDOWS, ROBIN_BATCH = (1 << 14, 1 << 16, 1 << 18, 1 << 20), 1 << 14
COST_WINDOWS = (1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22)
SLICE_SHARE = 0.4
SLICE_WINDOW = 1 << 21
"""Slices of larger windows are longer: a merge of both sides follows after a quarter of a window's tuples."""
WARM_ROWS = 1 << 22
"""At most so many tuples slide through a window before it is measured."""
BTREE, IM, PIM = Engine("btree"), Engine("im"), Engine("pim")


def cases(options: Options) -> Iterator[Case]:
    """All cases; those of `tuples` first."""
    windows, middle, batch = (QUICK_WINDOWS, QUICK_MIDDLE, QUICK_BATCH) if options.quick else (WINDOWS, MIDDLE, BATCH)
    for window in windows:
        yield _case(f"tuples-{_power(window)}", LiveWorkload(window, batch, "tuples"), (BTREE, IM, PIM))
    base = LiveWorkload(middle, batch, "tuples")
    yield _case(f"chain-{_power(middle)}", base, (BTREE, *_chains()))
    for window in (middle,) if options.quick else MERGE_WINDOWS:
        yield _case(f"merge-{_power(window)}", LiveWorkload(window, batch, "tuples"), (BTREE, *_ratios()))
    subs = [Engine("pim", f"subindexes {count}", {"subindexes": count}) for count in SUBINDEXES]
    yield _case(f"subindexes-{_power(middle)}", base, (BTREE, *subs))
    tasks = [Engine("pim", f"task {rows}", {"task_rows": rows}) for rows in TASKS]
    yield _case(f"task-{_power(middle)}", base, (BTREE, *tasks))
    yield from _variations(middle, batch)
    for window in windows[:2] if options.quick else windows[2:]:
        yield from live_threads.cases(window, batch, _slice_share(window))
    robin, costs = (windows[:1], windows[:1]) if options.quick else (ROBIN_WINDOWS, COST_WINDOWS)
    yield from live_threads.round_robin(robin, min(batch, ROBIN_BATCH), SLICE_SHARE)
    for window in costs:
        yield from live_costs.cases(window, batch, _slice_share(window))
    yield from live_memory.cases(windows)
    yield from live_latency.cases((middle,))


def _variations(window: int, batch: int) -> Iterator[Case]:
    """The cases that vary the streams."""
    size, engines = _power(window), (BTREE, IM, PIM)
    for rate in RATES:
        work = LiveWorkload(window, batch // (16 if rate > 100 else 1), "tuples", rate=rate)
        yield _case(f"matches-{size}-{rate:g}", work, engines)
    for power in (2, 4, 6):
        other = window >> power
        yield _case(
            f"asymmetric-{size}-{_power(other)}", LiveWorkload(window, batch, "tuples", s_window=other), engines
        )
    for share in SHARES:
        yield _case(f"rates-{size}-{share:g}", LiveWorkload(window, batch, "tuples", r_share=share), engines)
    for burst in (64, batch // 4):
        yield _case(f"rates-{size}-bursts{burst}", LiveWorkload(window, batch, "tuples", burst=burst), engines)
    yield _case(f"self-{size}", LiveWorkload(window, batch, "tuples", self_join=True), engines)
    for shape in SHAPES:
        yield _case(f"keys-{size}-{shape}", LiveWorkload(window, batch, "tuples", shape=shape), engines)
    steady = LiveWorkload(window, batch, "tuples", shape="gaussian")
    for drift in DRIFTS:
        work = LiveWorkload(window, batch, "tuples", shape="gaussian", drift=drift)
        two = live_threads.TWO
        yardsticks = [_contender(two, steady, f"{two.name}, steady")] if drift else []
        yield _case(f"drift-{size}-{drift:g}", work, (two,), yardsticks)


def _chains() -> list[Engine]:
    kinds = [(variant, length) for variant in ("b", "ib") for length in LENGTHS]
    return [Engine("chain", f"{kind}, length {n}", {"variant": kind, "length": n}) for kind, n in kinds]


def _ratios() -> list[Engine]:
    kinds = [("im", ratio) for ratio in MERGE_RATIOS] + [("pim", ratio) for ratio in MERGE_RATIOS]
    return [
        Engine("im" if name == "im" else "pim", f"ratio {ratio:g}", {"merge_ratio": ratio}) for name, ratio in kinds
    ]


def _case(name: str, work: LiveWorkload, engines: Sequence[Engine], peers: Sequence[Contender] = ()) -> Case:
    ours = [_contender(one, work) for one in engines]
    share, warm = _slice_share(work.window), min(2 * work.window, WARM_ROWS)
    rivals = frozenset({"btree"})
    return Case(name, "tuples/s", [*ours, *peers], work.facts, rivals=rivals, slice_share=share, warm_work=warm)


def _slice_share(window: int) -> float:
    return SLICE_SHARE * max(window / SLICE_WINDOW, 1.0)


def _contender(engine: Engine, work: LiveWorkload, yardstick: str | None = None) -> Contender:
    """An engine on a stream; as a yardstick, it runs another stream than the case's."""
    if yardstick is not None:
        return Contender(yardstick, partial(live_threads.start, work, engine), answers=False)
    return live_threads.ours(engine, work)


def _power(window: int) -> str:
    return f"2^{round(log2(window))}"
