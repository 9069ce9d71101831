"""An extension of griffe, for the site: the examples of a docstring, which begin with `>>>`, become blocks of code."""

from __future__ import annotations

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"^>>> .*?(?=\n\s*\n|\Z)", re.MULTILINE | re.DOTALL)


def with_blocks(text: str) -> str:
    """A docstring whose examples are fenced."""
    return _EXAMPLE.sub(lambda found: f"```pycon\n{found.group()}\n```", text)


class DoctestBlocks(griffe.Extension):
    """Fences the examples of every docstring that is read."""

    def on_object(self, *, obj: griffe.Object, loader: Any, **more: Any) -> None:
        """Change the docstring of one object."""
        if obj.docstring is not None and ">>> " in obj.docstring.value:
            obj.docstring.value = with_blocks(obj.docstring.value)
