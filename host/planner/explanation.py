"""What a call does and why: the logical plan of its condition, the index, the device, and the reasons for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from millrace.host.base.html import html_table
from millrace.host.base.types import SIDES
from millrace.host.expr.condition import Comparison, Condition, sides_of
from millrace.host.expr.grouped_keys import is_grouped
from millrace.host.expr.plan import Plan, search_shape
from millrace.host.join.registry import load_index
from millrace.host.planner.choice import IndexChoice
from millrace.host.planner.selectivity import FEW_PARTNERS

_GROUPING = (
    "equalities and an order key are searched as one key; a join of tables searches the equality alone if rows have up "
    f"to {FEW_PARTNERS} partners by it"
)


@dataclass(frozen=True)
class Explanation:
    """The plan, index and device of a call. It prints as text; `to_dict()` gives plain values."""

    operator: str
    plan: Mapping[str, Any]
    index: Mapping[str, Any]
    device: Mapping[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """All parts as plain values."""
        return {"operator": self.operator, **{name: _plain(part) for name, part in self._parts().items()}}

    def _parts(self) -> dict[str, Mapping[str, Any]]:
        return {"plan": self.plan, "index": self.index, "device": self.device}

    def _rows(self) -> Iterator[tuple[str, str]]:
        for part, entries in self._parts().items():
            for name, value in entries.items():
                yield part if name == "name" else f"{part} {name}", _text(value)

    def __str__(self) -> str:
        """One line per entry."""
        rows = list(self._rows())
        width = max(len(name) for name, _ in rows)
        return "\n".join([self.operator, *(f"  {name:<{width}}  {value}" for name, value in rows)])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return html_table(self._rows(), caption=self.operator)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return "; ".join(f"{name}: {_text(one)}" for name, one in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "none"
    return "-" if value is None else str(value)


def explain_plan(condition: Condition, plan: Plan | None, index: str) -> dict[str, Any]:
    """The logical plan of a condition; without a bound plan, what is known before the columns' types."""
    known: dict[str, Any] = {"condition": condition.text}
    filters = _filters(condition)
    if plan is None:
        return {
            **known,
            "kind": search_shape(condition).kind,
            "keys": "known once both schemas are",
            "filters": filters,
        }
    keys = load_index(index).max_keys
    searched = {side: [one.key.label for one in plan.searches[side][:keys]] for side in SIDES}
    rechecked = {_source(condition, term) for side in SIDES for part in plan.recheck_of(side, keys) for term in part}
    known |= {"kind": plan.kind, "keys": searched, "rechecked": sorted(rechecked), "filters": filters}
    return known | ({"grouping": _GROUPING} if any(is_grouped(plan, side) for side in SIDES) else {})


def _filters(condition: Condition) -> dict[str, list[str]]:
    """The terms over one side, which filter rows before any index sees them."""
    terms = condition.bands[0] if len(condition.bands) == 1 else ()
    return {side: [_source(condition, t) for t in terms if sides_of(t) == {side}] for side in SIDES}


def _source(condition: Condition, term: Comparison) -> str:
    """A term as the user wrote it."""
    return condition.text[term.span[0] : term.span[1]]


def explain_index(choice: IndexChoice, used: str, device: str, strategy: str = "") -> dict[str, Any]:
    """The index in use and the reasons for it."""
    why = choice.reason
    skipped = choice.candidates[: choice.candidates.index(used)] if used in choice.candidates else ()
    if skipped:
        why += f"; {', '.join(skipped)} cannot run on device {device}"
    return {"name": used, "why": why, "serving": list(choice.serving), **({"strategy": strategy} if strategy else {})}
