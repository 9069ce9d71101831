"""Device faults and interrupts: the call raises or falls back, and the join stays usable.

Every fault hits one of two equal joins; afterwards both must give identical output.
"""

from __future__ import annotations

from typing import Any

import pytest

import millrace as mr
from millrace import registry
from millrace.host.join import matcher
from millrace.host.join.baseline import btree
from millrace.host.join.scalejoin.index import ScaleJoinIndex
from tests.host import faults
from tests.sdk.join_cases import COUNT, MEANING, TIME, feed, goes_on_alike, meaning, rows


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch):
    """The CPU under the name `faulty`, which fails on demand."""
    monkeypatch.setitem(registry.BACKENDS, "faulty", faults.MODULE)
    faults.disarm()
    yield
    faults.disarm()


ON_FAULTY: dict[str, Any] = {**COUNT, "index": "scan", "device": "faulty"}
CALLS = [
    ("alloc", 1),
    ("write", 1),
    ("write", 4),
    ("launch", 1),
    ("launch", 2),
    ("wait", 2),
    ("read", 1),
    ("read", 2),
    ("free", 1),
]
every_fault = pytest.mark.parametrize(("call", "number"), CALLS)


@pytest.mark.usefixtures("faulty")
@every_fault
@pytest.mark.parametrize("warm", [1, 3])
def test_a_fault_is_raised_and_the_call_may_be_made_again(call: str, number: int, warm: int) -> None:
    hit, spared = mr.WindowJoin(**ON_FAULTY), mr.WindowJoin(**ON_FAULTY)
    for join in (hit, spared):
        for i in range(warm):
            feed(join, 5 * i)
    before = meaning(hit)
    wanted = spared.push("r", rows(50))
    faults.arm(call, number)
    with pytest.raises(mr.DeviceFault, match=call):
        hit.push("r", rows(50))
    assert not faults.disarm()
    assert meaning(hit) == before
    assert hit.stats["fallback"] is None
    assert hit.push("r", rows(50)).equals(wanted)
    goes_on_alike(hit, spared, 60)


@pytest.mark.usefixtures("faulty")
@every_fault
@pytest.mark.parametrize(
    "arguments", [{}, {"window": "4", "time": "ts"}, {"self_join": True}, {"output": "count"}], ids=str
)
def test_with_fallback_nothing_is_lost_or_repeated_and_stats_say_so(
    call: str, number: int, arguments: dict[str, Any]
) -> None:
    hit = mr.WindowJoin(**{**ON_FAULTY, **arguments, "fallback": "cpu"})
    spared = mr.WindowJoin(**{**ON_FAULTY, **arguments, "device": "cpu"})
    for join in (hit, spared):
        feed(join, 0)
        feed(join, 5)
    assert hit.stats["device"] == "faulty"
    assert hit.stats["fallback"] is None
    faults.arm(call, number)
    for i in range(2, 6):
        for one, other in zip(feed(hit, 5 * i), feed(spared, 5 * i), strict=True):
            assert one.equals(other)
    assert not faults.disarm()
    assert hit.close().equals(spared.close())
    assert {n: hit.stats[n] for n in MEANING} == {n: spared.stats[n] for n in MEANING}
    assert hit.stats["device"] == "cpu"
    said = str(hit.stats["fallback"])
    assert "faulty" in said
    assert "cpu" in said
    assert f"lost its {call}" in said


@pytest.mark.usefixtures("faulty")
def test_a_fault_in_a_later_step_of_one_push_undoes_the_whole_push(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matcher, "STEP_ROWS", 7)
    for fallback in (None, "cpu"):
        hit = mr.WindowJoin(**ON_FAULTY, fallback=fallback)
        spared = mr.WindowJoin(**ON_FAULTY)
        for join in (hit, spared):
            feed(join, 0)
        faults.arm("launch", 9)
        if fallback is None:
            before = meaning(hit)
            with pytest.raises(mr.DeviceFault):
                hit.push("s", rows(5, 40))
            assert meaning(hit) == before
        assert hit.push("s", rows(5, 40)).equals(spared.push("s", rows(5, 40)))
        assert not faults.disarm()
        one, other = feed(hit, 50), feed(spared, 50)
        assert all(a.equals(b) for a, b in zip(one, other, strict=True))


@pytest.mark.usefixtures("faulty")
@every_fault
def test_a_join_of_tables_falls_back_or_raises(call: str, number: int) -> None:
    wanted = mr.join(rows(0, 30), rows(3, 30), on=COUNT["on"], index="scan")
    faults.arm(call, number)
    with pytest.raises(mr.DeviceFault, match=call):
        mr.join(rows(0, 30), rows(3, 30), on=COUNT["on"], index="scan", device="faulty")
    faults.arm(call, number)
    with pytest.warns(RuntimeWarning, match="fell back"):
        found = mr.join(rows(0, 30), rows(3, 30), on=COUNT["on"], index="scan", device="faulty", fallback="cpu")
    assert not faults.disarm()
    assert found.equals(wanted)


@pytest.mark.usefixtures("faulty")
def test_a_join_that_fell_back_says_so_after_a_restore_too() -> None:
    arguments = {**ON_FAULTY, "fallback": "cpu"}
    j = mr.WindowJoin(**arguments)
    feed(j, 0)
    faults.arm("launch", 1)
    feed(j, 5)
    assert not faults.disarm()
    delta = j.state()
    k = mr.WindowJoin.restore(delta.manifest, delta.added, **arguments)
    assert k.stats["fallback"] == j.stats["fallback"]


@pytest.mark.usefixtures("faulty")
def test_the_faulty_device_gives_the_same_output_when_it_works() -> None:
    one, other = mr.WindowJoin(**ON_FAULTY), mr.WindowJoin(**COUNT, index="btree", device="cpu")
    for i in range(4):
        assert all(a.equals(b) for a, b in zip(feed(one, 5 * i), feed(other, 5 * i), strict=True))


@pytest.mark.parametrize("index", ["scan", "btree"])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
@pytest.mark.parametrize("arguments", [COUNT, TIME, {**COUNT, "self_join": True}], ids=["count", "time", "self-join"])
def test_an_interrupt_inside_a_step_leaves_the_join_usable(
    monkeypatch: pytest.MonkeyPatch, index: str, when: str, error: type[BaseException], arguments: dict[str, Any]
) -> None:
    kind: Any = {"scan": ScaleJoinIndex, "btree": btree.BTreeIndex}[index]
    real = kind.step

    def interrupted(self: Any, *given: Any) -> Any:
        if when == "after":
            real(self, *given)
        raise error

    hit, spared = (mr.WindowJoin(**{**arguments, "index": index}) for _ in range(2))
    for join in (hit, spared):
        feed(join, 0)
        feed(join, 5)
    before = meaning(hit)
    with monkeypatch.context() as patch:
        patch.setattr(kind, "step", interrupted)
        with pytest.raises(error):
            hit.push("r", rows(10))
    assert meaning(hit) == before
    assert hit.push("r", rows(10)).equals(spared.push("r", rows(10)))
    goes_on_alike(hit, spared, 15)


@pytest.mark.parametrize("where", ["pairs_table", "pair_positions", "counts_in_order"])
def test_an_interrupt_after_the_match_leaves_the_join_usable(monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    from millrace.join_parts import output, window_engine
    from millrace.join_parts.short_push import ShortPush

    arguments = {**COUNT, "output": "count" if where == "counts_in_order" else "pairs"}
    hit, spared = mr.WindowJoin(**arguments), mr.WindowJoin(**arguments)
    for join in (hit, spared):
        feed(join, 0)

    def interrupted(*given: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ShortPush, "read", lambda *given: None)  # the general way; tests/signals interrupt the short one
        patch.setattr(output if where == "pairs_table" else window_engine, where, interrupted)
        with pytest.raises(KeyboardInterrupt):
            hit.push("r", rows(5))
    goes_on_alike(hit, spared, 5)
