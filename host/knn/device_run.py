"""A run of points in a device's memory, in float32, and the selection of near points for many queries (`knn_select`).

Coordinates become offsets from the middle of the run, in units of a power of two, so that all are between -1 and 1;
then they are rounded to float32. Devices may fuse multiplication and addition, or flush small numbers to zero, so a
selected distance is approximate. In these units, with t the distance by the contract, d <= 8 dimensions, and q the
largest coordinate of the query, a distance on the device differs from t by less than the sum of:

- rounding a coordinate of the point and of the query: 2^-24 and 2^-24 q, so sqrt(d) 2^-24 (1 + q) in d dimensions;
- subtracting, squaring and adding: 2^-24 (1 + d / 2) t;
- numbers that are flushed to zero, and the rounding of doubles: 2^-60 and 2^-48 t.

Together this is below MARGIN (1 + q + t) with MARGIN = 2^-21. A point that is not selected is at least as far as the
farthest selected one, as the device computes it. So all points at a distance up to t are selected if the farthest
selected one is beyond t + MARGIN (1 + q + t), or if the device has found fewer points than it may select.

Limits: the largest offset is between 2^-400 and 2^400, and a query's is at most 2^40 times that of the points: beyond,
squared doubles could overflow or vanish, and float32 could not hold the query.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from millrace.host.base.faults import fault_point
from millrace.host.base.types import Array
from millrace.host.device.contract import Buffer, Device
from millrace.host.device.units import box_counts
from millrace.host.knn.lanes import BLOCK, FACTS, FANOUT
from millrace.host.knn.run import PointRun

UNIT = "knn_select"
NO_POINT = 0xFFFFFFFF
"""The slot of an empty entry of a selection."""
MARGIN = 2.0**-21
MAX_EXPONENT = 400
MAX_QUERY_OFFSET = 2.0**40
_U32 = np.dtype(np.uint32)


@dataclass(frozen=True)
class Selection:
    """The points that a device has selected: for each entry the squared distance and the slot, of all queries.

    The first entry is the farthest. `spread` is 1 + q of each query (see above).
    """

    squares: Array
    slots: Array
    spread: Array
    want: int


class DeviceRun:
    """The copy of a run in a device's memory; `scale` turns distances into the device's units."""

    def __init__(self, run: PointRun, device: Device) -> None:
        """Send the points and boxes of a run, unless the device cannot search it (`served`)."""
        self.run, self._device = run, device
        self._buffers: list[Buffer] = []
        boxes = [_boxes_of(level, run.dims) for level in run.levels]
        low, high = np.nanmin(boxes[-1][:, :, 0], axis=0), np.nanmax(boxes[-1][:, :, 1], axis=0)
        self._origin = low / 2 + high / 2
        _, exponent = np.frexp(np.maximum(high - self._origin, self._origin - low).max())
        self.served = abs(int(exponent)) <= MAX_EXPONENT
        self.scale = 2.0 ** -int(exponent) if self.served else 0.0
        if self.served:
            self._send(np.concatenate(boxes))

    def _send(self, boxes: Array) -> None:
        run = self.run
        blocks = run.coordinates.reshape(-1, run.dims, BLOCK)
        positions = np.zeros(len(run.positions), np.uint32)
        positions[: len(run)] = run.positions[: len(run)] - run.first
        counts = box_counts(len(run.positions))
        offsets = (np.cumsum(counts) - counts).astype(np.uint32)
        for data in (self._in_units(blocks, 1), positions, self._in_units(boxes, 1), offsets):
            self._buffers.append(self._device.adopt(data))

    def _in_units(self, values: Array, axis: int) -> Array:
        """Return coordinates in the device's units, as the bits of float32; `axis` is that of the dimensions."""
        shape = [-1 if i == axis else 1 for i in range(values.ndim)]
        with np.errstate(over="ignore"):  # of queries that are too far, which the device does not search
            offsets = (values - self._origin.reshape(shape)) * self.scale
            bits: Array = offsets.astype(np.float32).reshape(-1).view(np.uint32)
        return bits

    def offsets(self, columns: Array) -> Array:
        """Return the largest offset of each query, in the device's units."""
        with np.errstate(over="ignore"):
            largest: Array = np.abs(columns - self._origin[:, None]).max(axis=0) * self.scale
        return largest

    def select(self, columns: Array, spans: Array, limits: Array, want: int) -> Selection:
        """Return up to `want` of the nearest points of each query.

        `spans`: the first slot that each query sees and the one after the last, and the same for positions. `limits`:
        squared distances; all points up to them are found if there are fewer than `want`.
        """
        m, first = columns.shape[1], self.run.first
        spread = 1 + self.offsets(columns)
        sent = np.concatenate(
            [self._in_units(columns, 0), _device_limits(np.sqrt(limits) * self.scale, spread).view(np.uint32)]
        )
        begin, end = np.clip(spans[2:] - first, 0, self.run.end - first)
        seen = np.stack([spans[0], np.where(begin < end, spans[1], spans[0]), begin, end]).astype(np.uint32)
        with ExitStack() as held:
            buffers = []
            for data in (sent, seen.reshape(-1)):
                buffers.append(self._device.adopt(data))
                held.callback(self._device.free, buffers[-1])
            for _ in range(2):
                buffers.append(self._device.alloc(want * m, _U32))
                held.callback(self._device.free, buffers[-1])
            scalars = (len(self.run.positions), self.run.dims, len(self.run.levels), m, want)
            fault_point("knn.launch")
            self._device.wait(self._device.launch(UNIT, [*self._buffers, *buffers], scalars))
            squares, slots = (self._device.read(buffer, 0, want * m) for buffer in buffers[2:])
        return Selection(squares.view(np.float32), slots, spread, want)

    def close(self) -> None:
        """Free the memory of the device."""
        while self._buffers:
            self._device.free(self._buffers.pop())


def _boxes_of(level: Array, dims: int) -> Array:
    """Return the boxes of a level: box, dimension, low or high end; NaN behind the last box."""
    nodes = level.view(np.float64).reshape(-1, 2 * dims + FACTS, FANOUT)[:, : 2 * dims]
    boxes: Array = nodes.transpose(0, 2, 1).reshape(-1, dims, 2)
    return boxes


def _device_limits(distances: Array, spread: Array) -> Array:
    """Return squared distances as float32: all points up to `distances` are nearer on the device."""
    with np.errstate(over="ignore"):
        beyond = (distances + 2 * MARGIN * (spread + distances)) ** 2
        limits: Array = np.nextafter(beyond.astype(np.float32), np.float32(np.inf))
    return limits
