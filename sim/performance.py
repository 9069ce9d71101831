"""The performance model: how many cycles a command of `bisort_engine` takes, in closed formulas (PanJoin, IV and V-B).

A command takes as long as its scarcest means is needed, and a little more to begin and to end:

    cycles = max(lanes, port, channels) + set-up

- lanes: tuples (or words) of the largest slice over W; for a prober, beats of all partitions it scans, and one cycle
  for each further bound in the same beat; for a pair of probers, a cycle for each bound of either;
- port: beats through a cluster's memory port, one each way per cycle;
- channels: bytes through the memory, over the bytes of a cycle; ideal memory has no such limit;
- set-up: the sequencer's walks, the way through the pipelines, and the memory's latency once for every transfer that
  waits for another: two for a merge (read, write), three for a probe (bounds, words, positions).

`tests/sim/test_performance.py` holds the model to 2% of the simulated cycles, and probes on `ddr3` to 6%: clusters that
read partitions at random wait for each other at the channels, which no formula here knows. Limits: thousands of
cycles of work; buffers begin at beats; bounds are as random as the keys (a bound lies between any two words alike),
unless the partitions of every slice are given, which also tells how uneven the slices are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from millrace.sim.build import Config
from millrace.sim.model import Timing, timing
from millrace.sim.rtl import options

BURST = 16
FIFO_BEATS = 64
WIDEST_INDEX = 16
"""Of `bisort_engine.sv`: beats of a burst, beats under way to a reader, most samples of the index loaded per cycle."""
MERGER_READERS = 4
SEQUENCER = 20
"""Cycles of a command that has nothing to do: checks, start, the end seen, the result."""
LEAST_BOUNDS = 64
LEAST_BEATS = 16
"""Of `hw/driver.py`: slices of fewer bounds, or of fewer beats of tuples, are not worth a slot."""


@dataclass(frozen=True)
class Engine:
    """An engine and the memory behind it."""

    config: Config
    memory: Timing

    # What a means gives.

    @property
    def word_bytes(self) -> int:
        """Of a key."""
        return self.config.key_bits // 8

    @property
    def beat_bytes(self) -> int:
        """Of a memory port."""
        return self.config.data_bits // 8

    @property
    def tuples_per_cycle(self) -> int:
        """Of all mergers."""
        return self.config.lanes * self.config.clusters

    @property
    def bytes_per_cycle(self) -> float:
        """Of all channels; without any, of all ports, each way."""
        if self.memory.channels:
            return self.memory.channels * self.memory.bytes_per_cycle
        return float(self.config.clusters * self.beat_bytes)

    @property
    def pairs(self) -> int:
        """Pairs of probers."""
        return self.config.probers // 2

    # Commands.

    def merge(self, a_n: int, b_n: int, step: int | None = None) -> float:
        """Cycles of MERGE, with flag INDEX if there is a step."""
        size, lanes = a_n + b_n, self.config.lanes
        slices = _slices(size, self.config.clusters, LEAST_BEATS * lanes)
        samples = math.ceil(size / step) if step else 0
        moved = 2 * size * (self.word_bytes + 4) + samples * self.word_bytes
        # Words and ids of a tuple, each way.
        port = size / slices * (self.word_bytes + 4) / self.beat_bytes
        own = max(size / slices / lanes, port) + self._prefetch(max(a_n, b_n), min(a_n, b_n), slices)
        # The first beat of the last reader comes behind a burst of each other; the last bursts are written one by one.
        own += (MERGER_READERS - 1) * BURST + 1.5 * BURST
        return max(own, self._through_channels(moved)) + self._set_up(2)

    def index(self, size: int, step: int) -> float:
        """Cycles of INDEX."""
        slices = _slices(size, self.config.clusters, LEAST_BEATS * self.config.lanes)
        moved = (size + math.ceil(size / step)) * self.word_bytes
        return max(size / slices / self.config.lanes, self._through_channels(moved)) + self._set_up(2)

    def probe(
        self, size: int, bounds: int, step: int, resident: bool, partitions: Sequence[float] | None = None
    ) -> float:
        """Cycles of PROBE with host bounds.

        `resident`: the index is on the chip already. `partitions`: how many each slice of the batch touches, for one of
        the two streams of bounds; the other touches as many.
        """
        slices = _slices(bounds, self.pairs, LEAST_BOUNDS)
        if partitions is None:
            # A partition that two slices touch is read by both.
            partitions = [(touched(size, bounds, step) + slices - 1) / slices] * slices
        busiest = max(partitions)
        bound_beats = 2 * bounds * self.word_bytes / self.beat_bytes
        part_beats = 2 * math.ceil(min(step, size) * self.word_bytes / self.beat_bytes)
        # Pairs are dealt out to the clusters in turn.
        sharing = math.ceil(slices / self.config.clusters)
        port = sharing * (busiest * part_beats + bound_beats / slices)
        scan = busiest * math.ceil(min(step, size) / self.config.lanes)
        scan += (bounds - self._beats_hit(size, bounds, step)) / slices
        reads = sum(partitions) * part_beats + bound_beats
        moved = reads * self.beat_bytes + 2 * bounds * 4
        # A pair finds a partition per cycle, for its lower and its upper bounds in turn.
        cycles = max(port, scan, 2 * bounds / slices, self._through_channels(moved))
        depth = int(math.log2(self.config.index_depth))
        # Two cycles for each step of the search, and the last partition is scanned after it has come.
        cycles += self._set_up(3) + 2 * depth + math.ceil(step / self.config.lanes) / 2
        return cycles if resident else cycles + self.load(math.ceil(size / step))

    def load(self, samples: int) -> float:
        """Cycles that a PROBE takes longer because it loads the index, through the first port."""
        return samples / min(self.beat_bytes // self.word_bytes, WIDEST_INDEX) + 2 * self.memory.latency

    # Parts.

    def _set_up(self, waits: int) -> float:
        """The sequencer walks over the slots twice; `waits` transfers wait for the memory one after another."""
        return SEQUENCER + 2 * self.config.clusters + waits * self.memory.latency

    def _through_channels(self, moved: float) -> float:
        """Cycles for bytes, read or written, where the memory's channels limit."""
        return moved / self.bytes_per_cycle if self.memory.channels else 0.0

    def _prefetch(self, long: int, short: int, slices: int) -> float:
        """Cycles that a skewed merge loses at first, while the short run's readers fill up at the long one's pace.

        The words of the long run need more of the port than the quarter that they get meanwhile.
        """
        need = long / (long + short) * self.word_bytes * self.config.lanes / self.beat_bytes
        ahead = min(short / slices * self.word_bytes / self.beat_bytes, FIFO_BEATS) - BURST
        return max(0.0, 1 - 1 / (MERGER_READERS * need)) * MERGER_READERS * max(0.0, ahead)

    def _beats_hit(self, size: int, bounds: int, step: int) -> float:
        """Expected beats of W words in which bounds lie.

        A partition's first word precedes all its bounds, so its first beat has a gap less and its last one more.
        """
        lanes, rate = self.config.lanes, 1 + bounds / size
        inner = max(0, step // lanes - 2)
        gaps = {lanes - 1: 1, lanes: inner, lanes + 1: 1}
        return size / step * sum(count * (1 - rate**-gap) for gap, count in gaps.items())


def touched(size: int, bounds: int, step: int) -> float:
    """Expected partitions in which random bounds lie, among words that are as random: a bound in each gap alike."""
    return size / step * (1 - (1 + bounds / size) ** -step)


def engine(device: str, key_bits: int) -> Engine:
    """The engine that a device's name stands for, as in `rtl:w4,ddr3`."""
    config, memory = options(device)
    return Engine(Config(key_bits, config.lanes, config.clusters, config.probers, config.index_depth), timing(memory))


def _slices(size: int, parts: int, least: int) -> int:
    """As `hw/driver.py` cuts."""
    return max(1, min(parts, size // least))
