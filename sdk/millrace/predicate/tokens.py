"""Tokenizes the text with sqlglot, and rejects early what its parser would skip or recurse into too deeply."""

from __future__ import annotations

from itertools import pairwise

from sqlglot import Dialect, Token, TokenType
from sqlglot.errors import TokenError

from millrace.host.base.errors import PredicateError
from millrace.host.expr.condition import CompareOp, Span
from millrace.predicate.error_texts import ALLOWED, BANNED, not_allowed_here

MAX_NESTING = 32

COMPARE: dict[str, CompareOp] = {"=": "=", "<": "<", "<=": "<=", ">": ">", ">=": ">=", "<>": "<>", "!=": "<>"}
"""The comparison operators as written, each with its normal form."""

QUOTED = {TokenType.IDENTIFIER, TokenType.STRING, TokenType.NATIONAL_STRING, TokenType.HEX_STRING}
_SIGNS = {TokenType.DASH, TokenType.PLUS, TokenType.NOT, TokenType.TILDE}


def span_of(first: Token, last: Token | None = None) -> Span:
    """Return the span from one token to the end of another."""
    return first.start, (last or first).end + 1


def tokenize(text: str) -> list[Token]:
    """Return sqlglot's tokens; raise an error for comments, banned tokens and too deep nesting."""
    if not text.strip():
        raise PredicateError(f"the condition is empty: {ALLOWED}; write one such as r.x < s.x", text)
    try:
        tokens = Dialect.get_or_raise(None).tokenize(text)
    except TokenError:
        start = _open_quote(text)
        what = "a part of the text is never closed" if start is None else f"the quote {text[start]} is never closed"
        raise PredicateError(f"{what}: close it, or remove it", text, start or 0) from None
    _refuse_gaps(text, tokens)
    for token in tokens:
        if token.token_type in BANNED:
            raise PredicateError(BANNED[token.token_type] or not_allowed_here(token.text), text, *span_of(token))
    _refuse_nesting(text, tokens)
    for dot, token in pairwise(tokens):
        # After a dot every word is a name, but sqlglot would read some (r.select) as keywords.
        if dot.token_type is TokenType.DOT and token.text.isidentifier() and token.token_type not in QUOTED:
            token.token_type = TokenType.VAR
    return _with_binary(tokens)


def _with_binary(tokens: list[Token]) -> list[Token]:
    """Combine the tokens of `X'0aff'`, which sqlglot's neutral dialect reads as a name and a string."""
    found: list[Token] = []
    for token in tokens:
        before = found[-1] if found else None
        named = len(found) > 1 and found[-2].token_type is TokenType.DOT
        if (
            before is not None
            and before.text in ("X", "x")
            and (before.token_type, token.token_type) == (TokenType.VAR, TokenType.STRING)
            and before.end + 1 == token.start
            and not named
        ):
            found[-1] = Token(TokenType.HEX_STRING, token.text, token.line, token.col, before.start, token.end)
        else:
            found.append(token)
    return found


def _open_quote(text: str) -> int | None:
    """Return the index of the quote that is not closed at the end of the text."""
    opened: int | None = None
    closed = start = -2
    for i, char in enumerate(text):
        if opened is None and char in "'\"":
            doubled = closed == i - 1 and text[closed] == char
            opened = start = start if doubled else i
        elif opened is not None and char == text[opened]:
            opened, closed = None, i
    return opened


def _refuse_gaps(text: str, tokens: list[Token]) -> None:
    """Raise an error for comments: the only text that is not part of a token."""
    end = 0
    for start, after in [*(span_of(token) for token in tokens), (len(text), len(text))]:
        if gap := text[end:start].strip():
            at = text.index(gap, end)
            hint = "put a space between two minus signs, or remove it" if gap.startswith("--") else "remove it"
            raise PredicateError(f"a comment is not allowed in a condition: {hint}", text, at, at + len(gap))
        end = after


def _refuse_nesting(text: str, tokens: list[Token]) -> None:
    """Limit the nesting of parentheses and signs: sqlglot's parser recurses for each."""
    outer: list[int] = []
    depth = signs = 0
    for token in tokens:
        if token.token_type is TokenType.L_PAREN:
            outer.append(depth)
            depth, signs = depth + signs + 1, 0
        elif token.token_type is TokenType.R_PAREN:
            depth, signs = outer.pop() if outer else 0, 0
        else:
            signs = signs + 1 if token.token_type in _SIGNS else 0
        if depth + signs > MAX_NESTING:
            reason = f"more than {MAX_NESTING} parentheses and signs inside each other: leave out those not needed"
            raise PredicateError(reason, text, *span_of(token))
