"""Text from outside (tools, boards, image files) made safe for messages: one line, no control characters."""

from __future__ import annotations

LIMIT = 400


def printable(text: str) -> str:
    """The text without control characters, escape sequences' first bytes and lone surrogates; runs of space are one."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())


def last_words(text: str, limit: int = LIMIT) -> str:
    """The end of a tool's output, where its error message is."""
    return printable(text)[-limit:]
