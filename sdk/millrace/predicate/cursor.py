"""A cursor over the tokens: reads the next token, returns spans, and raises errors that point at a span."""

from __future__ import annotations

from typing import NoReturn

from sqlglot import Token, TokenType

from millrace.host.base.errors import PredicateError
from millrace.host.expr.condition import Span
from millrace.predicate.error_texts import ALLOWED, INFIX_REASONS, not_allowed_here
from millrace.predicate.tokens import QUOTED, span_of


class Cursor:
    """Iterates over the tokens of a text; `at` is the index of the next token."""

    def __init__(self, text: str, tokens: list[Token]) -> None:
        self.text = text
        self.tokens = tokens
        self.at = 0

    def kind(self, ahead: int = 0) -> TokenType | None:
        """Return the kind of the next token, None at the end."""
        return self.tokens[self.at + ahead].token_type if self.at + ahead < len(self.tokens) else None

    def word(self, ahead: int = 0) -> str:
        """Return the next token's text in upper case, empty at the end and for quoted text."""
        kind = self.kind(ahead)
        return "" if kind is None or kind in QUOTED else self.tokens[self.at + ahead].text.upper()

    def take(self, *kinds: TokenType) -> Token:
        """Consume the next token, which must be of one of these kinds (any kind if none is given)."""
        if self.kind() is None or (kinds and self.kind() not in kinds):
            self.fail_unexpected()
        self.at += 1
        return self.tokens[self.at - 1]

    def span_since(self, start: int) -> Span:
        """Return the span of the tokens consumed since index `start`."""
        return span_of(self.tokens[start], self.tokens[max(start, self.at - 1)])

    def next_span(self) -> Span:
        """Return the span of the next token, or of the last one at the end."""
        return span_of(self.tokens[min(self.at, len(self.tokens) - 1)])

    def call_span(self) -> Span:
        """Return the span from the next token to the parenthesis that closes the first one opened."""
        depth = 0
        for token in self.tokens[self.at :]:
            depth += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
            if token.token_type is TokenType.R_PAREN and depth <= 0:
                return span_of(self.tokens[self.at], token)
        return self.next_span()

    def text_of(self, span: Span) -> str:
        """Return the text of a span."""
        return self.text[slice(*span)]

    def fail(self, reason: str, span: Span) -> NoReturn:
        """Raise a `PredicateError` that points at this span."""
        raise PredicateError(reason, self.text, *span)

    def fail_unexpected(self) -> NoReturn:
        """Raise an error because the next token differs from sqlglot's tree, which skipped or rewrote something."""
        span = self.next_span()
        if self.kind() is None:
            self.fail(f"the condition ends too early: {ALLOWED}", span)
        reason = INFIX_REASONS.get(self.word())
        self.fail(not_allowed_here(self.text_of(span)) if reason is None else reason, span)
