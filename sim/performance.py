"""The performance model: closed formulas for the cycles of a command of `bisort_engine` (PanJoin, IV and V-B).

The most used resource determines the time of a command, plus a constant for start and end:

    cycles = max(lanes, port, channels) + set-up

- lanes: tuples (or words) of the largest slice divided by W; for a prober, the beats of all partitions it scans, plus
  one cycle for each further bound in the same beat; for a pair of probers, one cycle for each bound of both;
- port: beats through a cluster's memory port, one per direction and cycle;
- channels: bytes through the memory divided by its bytes per cycle; ideal memory has no such limit;
- set-up: the sequencer's steps, the depth of the pipelines, and the memory's latency once for every transfer that
  waits for another: two for a merge (read, write), three for a probe (bounds, words, positions).

`tests/sim/test_performance.py` checks that the model is within 2% of the simulated cycles, and within 6% for probes on
`ddr3`: clusters that read random partitions wait for each other at the channels, which the formulas do not include.
Limits: valid for thousands of cycles of work and for buffers that begin at beats. Bounds have the distribution of the
keys (every gap between two words is equally likely), unless the partitions of every slice are given.
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
"""Of `bisort_engine.sv`: beats of a burst, beats in flight to a reader, maximum index samples loaded per cycle."""
MERGER_READERS = 4
SEQUENCER = 20
"""Cycles of an empty command: checks, start, end detection, result."""
MIN_BOUNDS = 64
MIN_BEATS = 16
"""Of `hw/driver.py`: minimum bounds, and minimum beats of tuples, of a slice."""


@dataclass(frozen=True)
class Engine:
    """An engine and the memory behind it."""

    config: Config
    memory: Timing

    # Rates of the resources.

    @property
    def word_bytes(self) -> int:
        """Bytes of a key."""
        return self.config.key_bits // 8

    @property
    def beat_bytes(self) -> int:
        """Bytes per beat of a memory port."""
        return self.config.data_bits // 8

    @property
    def tuples_per_cycle(self) -> int:
        """The rate of all mergers together."""
        return self.config.lanes * self.config.clusters

    @property
    def bytes_per_cycle(self) -> float:
        """The bandwidth of all channels; without channels, of all ports per direction."""
        if self.memory.channels:
            return self.memory.channels * self.memory.bytes_per_cycle
        return float(self.config.clusters * self.beat_bytes)

    @property
    def pairs(self) -> int:
        """The number of pairs of probers."""
        return self.config.probers // 2

    # Commands.

    def merge(self, a_n: int, b_n: int, step: int | None = None) -> float:
        """Cycles of MERGE, with the flag INDEX if `step` is given."""
        size, lanes = a_n + b_n, self.config.lanes
        slices = _slices(size, self.config.clusters, MIN_BEATS * lanes)
        samples = math.ceil(size / step) if step else 0
        moved = 2 * size * (self.word_bytes + 4) + samples * self.word_bytes
        # Words and ids of a tuple, per direction.
        port = size / slices * (self.word_bytes + 4) / self.beat_bytes
        own = max(size / slices / lanes, port) + self._prefetch(max(a_n, b_n), min(a_n, b_n), slices)
        # The last reader's first beat follows a burst of each other reader; the last bursts are written one by one.
        own += (MERGER_READERS - 1) * BURST + 1.5 * BURST
        return max(own, self._through_channels(moved)) + self._set_up(2)

    def index(self, size: int, step: int) -> float:
        """Cycles of INDEX."""
        slices = _slices(size, self.config.clusters, MIN_BEATS * self.config.lanes)
        moved = (size + math.ceil(size / step)) * self.word_bytes
        return max(size / slices / self.config.lanes, self._through_channels(moved)) + self._set_up(2)

    def probe(
        self, size: int, bounds: int, step: int, resident: bool, partitions: Sequence[float] | None = None
    ) -> float:
        """Cycles of PROBE with host bounds.

        `resident`: the index is on the chip already. `partitions`: the number of partitions that each slice of the
        batch reads, for one of the two streams of bounds; the other stream reads as many.
        """
        slices = _slices(bounds, self.pairs, MIN_BOUNDS)
        if partitions is None:
            # A partition that two slices need is read by both.
            partitions = [(touched(size, bounds, step) + slices - 1) / slices] * slices
        busiest = max(partitions)
        bound_beats = 2 * bounds * self.word_bytes / self.beat_bytes
        part_beats = 2 * math.ceil(min(step, size) * self.word_bytes / self.beat_bytes)
        # Pairs are assigned to the clusters in turn.
        sharing = math.ceil(slices / self.config.clusters)
        port = sharing * (busiest * part_beats + bound_beats / slices)
        scan = busiest * math.ceil(min(step, size) / self.config.lanes)
        scan += (bounds - self._beats_hit(size, bounds, step)) / slices
        reads = sum(partitions) * part_beats + bound_beats
        moved = reads * self.beat_bytes + 2 * bounds * 4
        # A pair finds one partition per cycle, for lower and upper bounds in turn.
        cycles = max(port, scan, 2 * bounds / slices, self._through_channels(moved))
        depth = int(math.log2(self.config.index_depth))
        # Two cycles per step of the search; the last partition is scanned after it has arrived.
        cycles += self._set_up(3) + 2 * depth + math.ceil(step / self.config.lanes) / 2
        return cycles if resident else cycles + self.load(math.ceil(size / step))

    def load(self, samples: int) -> float:
        """The additional cycles of a PROBE that loads the index, through the first port."""
        return samples / min(self.beat_bytes // self.word_bytes, WIDEST_INDEX) + 2 * self.memory.latency

    # Parts.

    def _set_up(self, waits: int) -> float:
        """The sequencer visits the slots twice; `waits` transfers wait for the memory one after another."""
        return SEQUENCER + 2 * self.config.clusters + waits * self.memory.latency

    def _through_channels(self, moved: float) -> float:
        """Cycles to transfer bytes through the memory's channels; 0 without channels."""
        return moved / self.bytes_per_cycle if self.memory.channels else 0.0

    def _prefetch(self, long: int, short: int, slices: int) -> float:
        """Cycles that a skewed merge loses at the start, while the short run's readers fill their FIFOs.

        The words of the long run need more than the quarter of the port that they get during this time.
        """
        need = long / (long + short) * self.word_bytes * self.config.lanes / self.beat_bytes
        ahead = min(short / slices * self.word_bytes / self.beat_bytes, FIFO_BEATS) - BURST
        return max(0.0, 1 - 1 / (MERGER_READERS * need)) * MERGER_READERS * max(0.0, ahead)

    def _beats_hit(self, size: int, bounds: int, step: int) -> float:
        """The expected number of beats of W words that contain bounds.

        A partition's first word precedes all its bounds, so its first beat has one gap less and its last beat one more.
        """
        lanes, rate = self.config.lanes, 1 + bounds / size
        inner = max(0, step // lanes - 2)
        gaps = {lanes - 1: 1, lanes: inner, lanes + 1: 1}
        return size / step * sum(count * (1 - rate**-gap) for gap, count in gaps.items())


def touched(size: int, bounds: int, step: int) -> float:
    """The expected number of partitions with bounds, if every gap between words is equally likely for a bound."""
    return size / step * (1 - (1 + bounds / size) ** -step)


def engine(device: str, key_bits: int) -> Engine:
    """The engine that a device name specifies, as in `rtl:w4,ddr3`."""
    config, memory = options(device)
    return Engine(Config(key_bits, config.lanes, config.clusters, config.probers, config.index_depth), timing(memory))


def _slices(size: int, parts: int, min_size: int) -> int:
    """The number of slices that `hw/driver.py` uses."""
    return max(1, min(parts, size // min_size))
