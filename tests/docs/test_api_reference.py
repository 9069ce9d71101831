"""The Python reference is complete: every public argument has a type, a meaning and, by its signature, a default.

The reference is made of docstrings (`docs/reference/python.md`, `docs/reference/spark.md`). A type is the annotation,
or, where that is `Any` because many things are converted, the one in the docstring's `Args`. A callable with arguments
says what it raises.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import griffe
import pytest

import millrace as mr
from millrace import spark as ms
from tests.packaging.project import ROOT

PAGES = {"millrace": "docs/reference/python.md", "millrace.spark": "docs/reference/spark.md"}
NOT_CALLED = (mr.MillraceError, mr.DeviceInfo, mr.Explanation, mr.TuneResult, mr.StateDelta, mr.Limits)
"""Errors, and what calls return: users read them, and do not make them."""


def is_returned(value: Any) -> bool:
    """Whether users only read objects of this class."""
    return isinstance(value, type) and (issubclass(value, NOT_CALLED) or value.__name__.endswith("Stats"))


def public_callables() -> Iterator[tuple[str, Callable[..., Any], Any]]:
    """Name, callable and the object whose docstring has the arguments."""
    for name in mr.__all__:
        value = getattr(mr, name)
        if name.startswith("__") or is_returned(value) or not callable(value):
            continue
        yield f"mr.{name}", vars(value)["__init__"] if isinstance(value, type) else value, value
        for method, found in inspect.getmembers(value) if isinstance(value, type) else ():
            if not method.startswith("_") and callable(found):
                yield f"mr.{name}.{method}", found, found
    for name in ms.__all__:
        value = getattr(ms, name)
        yield f"ms.{name}", vars(value)["__init__"] if isinstance(value, type) else value, value


CALLABLES = {name: (call, documented) for name, call, documented in public_callables()}


def sections(documented: Any) -> dict[str, Any]:
    """The parsed sections of a docstring, by kind."""
    text = inspect.getdoc(documented) or ""
    return {part.kind.value: part.value for part in griffe.Docstring(text).parse("google", warnings=False)}


@pytest.mark.parametrize("name", CALLABLES)
def test_every_argument_has_a_type_and_a_meaning(name: str) -> None:
    call, documented = CALLABLES[name]
    found = sections(documented)
    described = {item.name.lstrip("*"): item for item in found.get("parameters", [])}
    wanted = {key: value for key, value in inspect.signature(call).parameters.items() if key not in ("self", "cls")}
    assert list(described) == list(wanted), "Args names the arguments, in the order of the signature"
    for key, parameter in wanted.items():
        item = described[key]
        loose = parameter.annotation in (inspect.Parameter.empty, "Any")
        assert not loose or item.annotation, f"{key}: a type"
        assert len(item.description) > 10, f"{key}: a meaning"
    assert not wanted or "raises" in found or name in ("mr.explain",), "what it raises"


@pytest.mark.parametrize("module", PAGES)
def test_the_page_names_all_that_is_public(module: str) -> None:
    text = (ROOT / PAGES[module]).read_text()
    listed = set(re.findall(r"^ +heading: m[rs]\.(\w+)", text, re.MULTILINE))
    public = {"millrace": mr, "millrace.spark": ms}[module].__all__
    errors = {
        name
        for name in public
        if isinstance(getattr(mr, name, None), type) and name.endswith(("Error", "Fault", "Unavailable"))
    }
    assert listed == {name for name in public if not name.startswith("__")} - errors
