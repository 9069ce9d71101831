"""Decorates the small classes that every push makes a dozen objects of: dataclasses that are read only by convention.

Python's frozen dataclasses set each field through a call, which takes three times as long as a plain one. Type checkers
treat a value class as frozen. Limits: no comparison and no hash by content; fields are mostly arrays anyway.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(field,))
def value_class(cls: type[T]) -> type[T]:
    """Make a class a dataclass whose fields do not change."""
    return dataclass(eq=False)(cls)
