"""Every argument of the public calls that takes one of a few words is typed with them, for checkers and editors."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest

import millrace as mr

CHOICES = ("how", "index", "output", "fallback", "layout", "duplicates", "mode", "metric", "operator")
"""`side` is not among them: programs loop over `"rs"`, whose letters are no literals to a checker."""


def calls() -> Iterator[tuple[str, Callable[..., Any]]]:
    """The public functions, constructors and methods."""
    for name in mr.__all__:
        public = getattr(mr, name)
        if inspect.isfunction(public):
            yield name, public
        elif inspect.isclass(public) and not name.endswith(("Stats", "Result", "Explanation", "Error")):
            yield name, public.__init__
            yield from (
                (f"{name}.{method}", call)
                for method, call in inspect.getmembers(public, inspect.isfunction)
                if not method.startswith("_")
            )


def literals(hint: Any) -> bool:
    """Whether a type is a `Literal`, or one or None."""
    if get_origin(hint) in (Union, UnionType):
        return all(one is type(None) or literals(one) for one in get_args(hint))
    return get_origin(hint) is Literal


FOUND = [(name, one) for name, call in calls() for one in inspect.signature(call).parameters if one in CHOICES]


@pytest.mark.parametrize(("call", "argument"), FOUND)
def test_a_choice_is_typed(call: str, argument: str) -> None:
    assert literals(get_type_hints(dict(calls())[call])[argument])


def test_all_choices_are_seen() -> None:
    assert {argument for _, argument in FOUND} == set(CHOICES)
