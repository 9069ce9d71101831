"""Reads the rows of a side for a nearest-neighbour join: points in columns of doubles, and the group of each row.

Points and groups become columns of the tuples, under names that no table's column has. So windows, waiting rows and
checkpoints treat them as a condition's columns. A row whose coordinates are no point, or with a null in a `by` column,
is held and matches nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from millrace.host.base.codes import CodeTable
from millrace.host.base.errors import KeyTypeError, SchemaError
from millrace.host.base.types import SIDES, Array, Longs, Mask, Side
from millrace.host.base.words import KeyType, all_true, mask_and, native
from millrace.host.expr.code_terms import term_type
from millrace.host.knn.metric import Metric, point_dimensions, to_points, usable_points
from millrace.host.stream.intake import Cells, Intake, time_type

_POINT = KeyType("float64", "float", np.dtype(np.float64))
_GROUP = KeyType("group", "code", np.dtype(np.int64), family="binary")
_PREFIX = "\0"
"""Begins the names of columns that are made here."""


@dataclass(frozen=True)
class PointSpec:
    """Which columns of each side are coordinates (`on`) and groups (`by`), and the metric."""

    on: dict[Side, tuple[str, ...]]
    by: dict[Side, tuple[str, ...]]
    metric: Metric

    @property
    def dimensions(self) -> int:
        """The dimensions in which points are searched."""
        return point_dimensions(self.metric, len(self.on["r"]))

    def point_names(self, side: Side) -> list[str]:
        """The tuples' columns that hold the points."""
        return [f"{_PREFIX}{i} of {_PREFIX.join(self.on[side])}" for i in range(self.dimensions)]

    def group_name(self, side: Side) -> str | None:
        """The tuples' column that holds the group; None without `by`."""
        return f"{_PREFIX}by {_PREFIX.join(self.by[side])}" if self.by[side] else None

    def points_of(self, side: Side, columns: Mapping[str, Array], live: Mask) -> list[Array]:
        """The points of a side's tuples in columns, NaN for those that match nothing."""
        points = [columns[name] for name in self.point_names(side)]
        return points if all_true(live) else [np.where(live, one, np.nan) for one in points]

    def groups_of(self, side: Side, columns: Mapping[str, Array]) -> Longs | None:
        """The groups of a side's tuples; None without `by`."""
        name = self.group_name(side)
        return None if name is None else columns[name]

    def describe(self) -> str:
        """The coordinates, the metric and the groups, as text."""
        pairs = zip(self.by["r"], self.by["s"], strict=True)
        groups = " and ".join(f"r.{a} = s.{b}" for a, b in pairs)
        return f"nearest by {self.metric} distance of {', '.join(self.on['r'])}{' with ' + groups if groups else ''}"


@dataclass(frozen=True)
class PointIntake(Intake):
    """An intake of points; `sources`: the types of the table's columns that are read."""

    spec: PointSpec = field(kw_only=True)
    sources: tuple[tuple[str, KeyType], ...] = field(kw_only=True)

    def _live(self, table: pa.Table, cells: Cells) -> tuple[Mask, Mask]:
        """Make the points and groups that are not in `cells` yet; return which rows can match, twice."""
        kinds = dict(self.sources)
        names = self.spec.point_names(self.side)
        if names[0] not in cells:
            columns = [self._numbers(table, name, kinds[name]) for name in self.spec.on[self.side]]
            usable = usable_points(self.spec.metric, columns)
            for name, values in zip(names, to_points(self.spec.metric, columns), strict=True):
                cells[name] = values, usable
        live = cells[names[0]][1]
        group = self.spec.group_name(self.side)
        if group is not None:
            if group not in cells:
                self._add_groups(table, cells, group, [(name, kinds[name]) for name in self.spec.by[self.side]])
            live = mask_and(live, cells[group][1])
        return live, live

    @staticmethod
    def _numbers(table: pa.Table, name: str, kind: KeyType) -> Array:
        """A column as doubles, NaN where it has no value."""
        values, valid = native(table.column(name), kind)
        numbers = np.ascontiguousarray(values, np.float64)
        return numbers if valid.all() else np.where(valid, numbers, np.nan)

    def _add_groups(self, table: pa.Table, cells: Cells, group: str, kinds: list[tuple[str, KeyType]]) -> None:
        """Make the group of each row: the word of its value, or a code for its values in several columns."""
        words: list[Longs] = []
        usable = np.ones(table.num_rows, np.bool_)
        for name, kind in kinds:
            values, valid = (self.codes.encode if kind.domain == "code" else native)(table.column(name), kind)
            usable &= valid
            words.append(_words(values, kind))
            if len(kinds) > 1 and kind.domain == "code":
                cells[name] = values, valid  # held with the group, so that the code stays in use
        if len(words) > 1:
            packed = np.ascontiguousarray(np.stack(words, axis=1))
            rows = pa.FixedSizeBinaryArray.from_buffers(
                pa.binary(8 * len(words)), len(packed), [None, pa.py_buffer(packed)]
            )
            words = [self.codes.encode(rows, _GROUP)[0]]
        cells[group] = words[0], usable


def _words(values: Array, kind: KeyType) -> Longs:
    """Values of a `by` column as 64-bit words, equal where the values are equal."""
    if kind.domain == "float":
        return np.ascontiguousarray(values, np.float64).view(np.int64)
    if kind.dtype == np.uint64:
        return np.ascontiguousarray(values).view(np.int64)
    return values.astype(np.int64, copy=False)


def make_point_intake(side: Side, spec: PointSpec, schema: pa.Schema, time: str | None, codes: CodeTable) -> Intake:
    """Find the columns that the join names, and check what concerns only this side."""
    on = {name: _coordinate(side, name, schema) for name in spec.on[side]}
    by = {name: term_type(f"{side}.{name}", _field(side, name, schema, "by")) for name in spec.by[side]}
    types = {(side, name): _POINT for name in spec.point_names(side)}
    group = spec.group_name(side)
    if group is not None:
        types[side, group] = _GROUP
        types |= {(side, name): kind for name, kind in by.items() if len(by) > 1 and kind.domain == "code"}
    timed = None if time is None else (time, time_type(side, time, schema))
    sources = tuple((on | by).items())
    return PointIntake(side, schema, types, (), frozenset(), timed, codes, spec=spec, sources=sources)


def _field(side: Side, name: str, schema: pa.Schema, argument: str) -> pa.DataType:
    if name not in schema.names:
        raise SchemaError(
            f"{argument} names {side}.{name}, but {side} has no such column; its columns are {', '.join(schema.names)}"
        )
    return schema.field(name).type


def _coordinate(side: Side, name: str, schema: pa.Schema) -> KeyType:
    data_type = _field(side, name, schema, "on")
    if not (pa.types.is_integer(data_type) or pa.types.is_float32(data_type) or pa.types.is_float64(data_type)):
        raise KeyTypeError(
            f"column {side}.{name} has type {data_type}, which is no coordinate; the types that work are int8..int64, "
            f"uint8..uint64, float32 and float64: cast the column first"
        )
    return term_type(f"{side}.{name}", data_type)


def bind_points(spec: PointSpec, schemas: dict[Side, pa.Schema]) -> dict[Side, Intake]:
    """The intakes of two tables, after all checks of their columns and types."""
    codes = CodeTable()
    intakes = {side: make_point_intake(side, spec, schemas[side], None, codes) for side in SIDES}
    check_groups(spec, schemas)
    return intakes


def check_groups(spec: PointSpec, schemas: dict[Side, pa.Schema]) -> None:
    """Raise a `SchemaError` unless the `by` columns of both sides can be equal."""
    for names in zip(spec.by["r"], spec.by["s"], strict=True):
        labels = [f"{side}.{name}" for side, name in zip(SIDES, names, strict=True)]
        types = [schemas[side].field(name).type for side, name in zip(SIDES, names, strict=True)]
        kinds = [_comparable(term_type(label, one)) for label, one in zip(labels, types, strict=True)]
        if kinds[0] != kinds[1]:
            raise SchemaError(
                f"by pairs {labels[0]} ({types[0]}) with {labels[1]} ({types[1]}), which are never equal: cast one of "
                f"them to the type of the other"
            )


def _comparable(kind: KeyType) -> tuple[object, ...]:
    """What two `by` columns must have in common: 64-bit unsigned integers do not fit into signed words."""
    return kind.domain, kind.family, kind.ns, kind.zoned, kind.dtype == np.uint64
