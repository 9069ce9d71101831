"""What may be given by position, the lists of choices, and the options of an index."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, ClassVar, get_args

import pyarrow as pa
import pytest

import millrace as mr
from millrace.host.join.baseline.scan import ScanIndex
from millrace.host.join.contract import IndexContext, Option
from millrace.host.join.registry import INDEXES
from millrace.ingest import choices
from millrace.ingest.arguments import GivenWindowArguments
from millrace.ingest.knn_arguments import GivenKnnArguments

POSITIONAL: dict[Callable[..., Any], list[str]] = {
    mr.WindowJoin: ["on"],
    mr.WindowJoin.push: ["self", "side", "batch", "source"],
    mr.WindowJoin.push_both: ["self", "r_batch", "s_batch", "arrival"],
    mr.WindowJoin.advance: ["self", "side", "ts", "source"],
    mr.WindowJoin.restore: ["manifest", "runs"],
    mr.LiveJoin: ["on"],
    mr.LiveJoin.put: ["self", "side", "batch", "source"],
    mr.LiveJoin.poll: ["self", "timeout"],
    mr.LiveJoin.advance: ["self", "side", "ts", "source"],
    mr.LiveJoin.restore: ["manifest", "runs"],
    mr.join: ["r", "s", "on"],
    mr.KnnJoin: ["on"],
    mr.KnnJoin.push: ["self", "side", "batch", "source"],
    mr.KnnJoin.restore: ["manifest", "runs"],
    mr.knn_join: ["r", "s", "on"],
    mr.OrderedIndex: ["keys", "values"],
    mr.OrderedIndex.lookup: ["self", "queries"],
    mr.OrderedIndex.range: ["self", "lo", "hi"],
    mr.OrderedIndex.update: ["self"],
    mr.OrderedIndex.save: ["self", "path"],
    mr.OrderedIndex.open: ["path"],
    mr.ScaleGate: [],
    mr.ScaleGate.add: ["self", "src", "batch"],
    mr.ScaleGate.advance: ["self", "src", "ts"],
    mr.ScaleGate.close: ["self", "src"],
    mr.ScaleGate.ready: ["self", "reader"],
    mr.device: ["name"],
}


@pytest.mark.parametrize("call", POSITIONAL, ids=lambda call: call.__qualname__)
def test_all_but_tables_and_conditions_is_keyword_only(call: Callable[..., Any]) -> None:
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    assert [p.name for p in inspect.signature(call).parameters.values() if p.kind in kinds] == POSITIONAL[call]


def test_a_positional_window_is_refused() -> None:
    with pytest.raises(TypeError):
        mr.WindowJoin("r.x = s.x", "5 rows")  # type: ignore[call-arg]


def test_the_arguments_are_those_of_the_contract() -> None:
    window = (
        "on window time lateness sources self_join index device threads output max_pending schemas fallback options"
    )
    assert sorted(inspect.signature(mr.WindowJoin).parameters) == sorted(window.split())
    assert sorted(inspect.signature(mr.LiveJoin).parameters) == sorted([*window.split(), "capacity"])
    table = "r s on how index device threads output fallback options batch_rows"
    assert sorted(inspect.signature(mr.join).parameters) == sorted(table.split())
    stream = "on k window time lateness sources self_join metric within by how device threads output max_pending"
    names = sorted([*stream.split(), "schemas", "fallback", "options"])
    assert sorted(inspect.signature(mr.KnnJoin).parameters) == names


@pytest.mark.parametrize(("given", "call"), [(GivenWindowArguments, mr.WindowJoin), (GivenKnnArguments, mr.KnnJoin)])
def test_given_arguments_have_the_defaults_of_the_call(given: Any, call: Any) -> None:
    made = {name: p.default for name, p in inspect.signature(given).parameters.items()}
    called = {name: p.default for name, p in inspect.signature(call).parameters.items()}
    assert made == {name: default for name, default in called.items() if name != "schemas"}


def test_the_index_names_are_those_of_the_registry() -> None:
    assert get_args(choices.IndexName) == tuple(INDEXES)


# Options.


class TunedScan(ScanIndex):
    """A scan with options, as a family of indexes would declare them."""

    options: ClassVar = {
        "length": Option(8, 2, 64),
        "ratio": Option(0.5, 0),
        "variant": Option("a", choices=("a", "b")),
    }
    seen: ClassVar[list[dict[str, Any]]] = []

    def __init__(self, context: IndexContext) -> None:
        super().__init__(context)
        self.seen.append(dict(context.options))


@pytest.fixture
def tuned(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setitem(INDEXES, "tuned", f"{__name__}:TunedScan")
    monkeypatch.setattr(TunedScan, "seen", [])
    return "tuned"


TABLE = pa.table({"x": [1, 2], "y": [2, 1]})
TWO_KEYS = "r.x < s.x AND r.y > s.y"
"""A condition that every index serves."""


@pytest.mark.parametrize("index", INDEXES)
def test_an_unknown_option_is_an_error_that_lists_the_names(index: Any) -> None:
    for call in (
        lambda: mr.WindowJoin(TWO_KEYS, window="5 rows", index=index, options={"speed": 1}),
        lambda: mr.join(TABLE, TABLE, TWO_KEYS, index=index, options={"speed": 1}),
    ):
        with pytest.raises(mr.ArgumentError, match=r"options=\{'speed': 1\}.*'speed'; (it has no|its) options"):
            call()


def test_the_index_gets_options_and_defaults(tuned: Any) -> None:
    j = mr.WindowJoin("r.x = s.x", window="5 rows", index=tuned, options={"length": 3})
    j.push("r", TABLE)
    assert j.push("s", TABLE).num_rows == 2
    assert mr.join(TABLE, TABLE, "r.x = s.x", index=tuned, options={"variant": "b", "ratio": 2}).num_rows == 2
    assert TunedScan.seen[0] == {"length": 3, "ratio": 0.5, "variant": "a"}
    assert TunedScan.seen[-1] == {"length": 8, "ratio": 2, "variant": "b"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"length": 1}, r"'length': 1.*a whole number of at least 2 and at most 64"),
        ({"length": 65}, "at most 64"),
        ({"length": 2.5}, "a whole number"),
        ({"length": True}, "a whole number"),
        ({"ratio": -1}, "a number of at least 0"),
        ({"ratio": "x"}, "a number"),
        ({"variant": "c"}, "'a' or 'b'"),
        ({"width": 3}, "its options are length, ratio, variant"),
        ({3: 3}, "its options are"),
        (["length"], "must be a mapping"),
        ("length", "must be a mapping"),
    ],
)
def test_a_bad_option_is_refused(tuned: Any, options: Any, message: str) -> None:
    with pytest.raises(mr.ArgumentError, match=message):
        mr.WindowJoin("r.x = s.x", window="5 rows", index=tuned, options=options)
