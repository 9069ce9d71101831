"""A place in the tokens: what comes next, what was taken, and errors that point at it."""

from __future__ import annotations

from typing import NoReturn

from sqlglot import Token, TokenType

from millrace.host.base.errors import PredicateError
from millrace.host.expr.condition import Span
from millrace.predicate.refusals import ALLOWED, INFIX_REASONS, cannot_stand
from millrace.predicate.tokens import QUOTED, span_of


class Cursor:
    """Goes through the tokens of a text; `at` is the number of the next one."""

    def __init__(self, text: str, tokens: list[Token]) -> None:
        self.text = text
        self.tokens = tokens
        self.at = 0

    def kind(self, ahead: int = 0) -> TokenType | None:
        """What kind of token comes next, None at the end."""
        return self.tokens[self.at + ahead].token_type if self.at + ahead < len(self.tokens) else None

    def word(self, ahead: int = 0) -> str:
        """The next token's text in capitals, empty at the end and for anything in quotes."""
        kind = self.kind(ahead)
        return "" if kind is None or kind in QUOTED else self.tokens[self.at + ahead].text.upper()

    def take(self, *kinds: TokenType) -> Token:
        """The next token, which must be of one of these kinds (of any if none is given)."""
        if self.kind() is None or (kinds and self.kind() not in kinds):
            self.misfit()
        self.at += 1
        return self.tokens[self.at - 1]

    def since(self, start: int) -> Span:
        """The span of the tokens from number `start` up to here."""
        return span_of(self.tokens[start], self.tokens[max(start, self.at - 1)])

    def here(self) -> Span:
        """The span of the next token, or of the last."""
        return span_of(self.tokens[min(self.at, len(self.tokens) - 1)])

    def call(self) -> Span:
        """From the next token to the parenthesis that closes the first one opened."""
        depth = 0
        for token in self.tokens[self.at :]:
            depth += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
            if token.token_type is TokenType.R_PAREN and depth <= 0:
                return span_of(self.tokens[self.at], token)
        return self.here()

    def written(self, span: Span) -> str:
        """The text of a span."""
        return self.text[slice(*span)]

    def fail(self, reason: str, span: Span) -> NoReturn:
        """Refuse the text because of this place in it."""
        raise PredicateError(reason, self.text, *span)

    def misfit(self) -> NoReturn:
        """The next token is not what sqlglot's tree says: it skipped or rewrote something."""
        span = self.here()
        if self.kind() is None:
            self.fail(f"the condition ends too early: {ALLOWED}", span)
        reason = INFIX_REASONS.get(self.word())
        self.fail(cannot_stand(self.written(span)) if reason is None else reason, span)
