"""Parses the tokens with sqlglot, and explains its syntax errors with a text and a span."""

from __future__ import annotations

from sqlglot import Dialect, Token, TokenType, exp
from sqlglot.errors import ParseError

from millrace.host.base.errors import PredicateError
from millrace.host.expr.condition import Span
from millrace.predicate.error_texts import ALLOWED, TEXT_LITERAL, not_a_number, not_allowed_here, quote_advice
from millrace.predicate.tokens import COMPARE, QUOTED, span_of

_NEEDS_LEFT = frozenset({*COMPARE, "AND", "OR", "*", "/", "%", "|", "&", "^", "BETWEEN", ")"})
_NEEDS_RIGHT = _NEEDS_LEFT - {")"} | {"+", "-", "(", "NOT"}
_HINTS = {"=>": "; did you mean >=", "&&": "; did you mean AND"}


def parse_tree(text: str, tokens: list[Token]) -> exp.Expr:
    """Return sqlglot's tree of the text."""
    try:
        trees = Dialect.get_or_raise(None).parser().parse_into(exp.Condition, tokens, text)
    except ParseError as error:
        raise _parse_error(text, tokens, error) from None
    if len(trees) != 1 or trees[0] is None:
        reason = f"`{tokens[0].text}` does not begin a condition: {ALLOWED}"
        raise PredicateError(reason, text, *span_of(tokens[0]))
    return trees[0]


def _parse_error(text: str, tokens: list[Token], error: ParseError) -> PredicateError:
    """Convert a syntax error of sqlglot to a `PredicateError` with a span."""
    details = error.errors[0] if error.errors else {}
    description = str(details.get("description") or "")
    location = (details.get("line"), details.get("col"))
    at = next((i for i, t in enumerate(tokens) if (t.line, t.col) == location), len(tokens) - 1)
    if (missing := _missing_operand(tokens, at if not description.startswith("Required") else len(tokens))) is not None:
        return PredicateError(
            f"an operand is missing {missing[0]}: write a column or a literal there", text, *missing[1]
        )
    if (unmatched := _unmatched_parenthesis(tokens)) is not None:
        other = "(" if unmatched.text == ")" else ")"
        reason = f"`{unmatched.text}` has no matching `{other}`: add it, or remove this"
        return PredicateError(reason, text, *span_of(unmatched))
    if at and (found := _glued_number_error(text, tokens, at)) is not None:
        return found
    if description.startswith("The number of provided arguments"):
        reason = "too many arguments: abs takes one, and no other function is allowed"
        return PredicateError(reason, text, *span_of(tokens[at]))
    token = tokens[at - 1] if description.startswith("Invalid numeric") and at else tokens[at]
    reason = not_allowed_here(text[slice(*span_of(token))], _HINTS.get(token.text, ""))
    if token.token_type in (TokenType.STRING, TokenType.NATIONAL_STRING):
        reason = TEXT_LITERAL
    return PredicateError(reason, text, *span_of(token))


def _glued_number_error(text: str, tokens: list[Token], at: int) -> PredicateError | None:
    """Return the error for a number that is followed by token `at` without a space: `1_000` or `r.2a`."""
    before, token = tokens[at - 1], tokens[at]
    joined = before.token_type is TokenType.NUMBER and before.end + 1 == token.start
    if not joined or not token.text.isidentifier():
        return None
    span = span_of(before, token)
    written = text[slice(*span)]
    named = at > 1 and tokens[at - 2].token_type is TokenType.DOT
    return PredicateError(quote_advice(written) if named else not_a_number(written), text, *span)


def _missing_operand(tokens: list[Token], last: int) -> tuple[str, Span] | None:
    """Find the first missing operand up to token `last`; return its location as text and as a span."""
    words = [_word(tokens, i) for i in range(min(last + 1, len(tokens)))]
    for i, word in enumerate(words):
        if word in _NEEDS_LEFT and i == 0:
            return f"before `{word}`", span_of(tokens[i])
        if word in _NEEDS_LEFT and words[i - 1] in _NEEDS_RIGHT:
            return f"between `{words[i - 1]}` and `{word}`", span_of(tokens[i - 1], tokens[i])
    if len(words) == len(tokens) and words[-1] in _NEEDS_RIGHT:
        return f"after `{words[-1]}`", span_of(tokens[-1])
    return None


def _word(tokens: list[Token], at: int) -> str:
    """Return a token's text in upper case; empty for quoted text and for a name after a dot."""
    named = at > 0 and tokens[at - 1].token_type is TokenType.DOT
    return "" if named or tokens[at].token_type in QUOTED else tokens[at].text.upper()


def _unmatched_parenthesis(tokens: list[Token]) -> Token | None:
    """Return the first unmatched closing parenthesis, or else the last unmatched opening one."""
    opened: list[Token] = []
    for token in tokens:
        if token.token_type is TokenType.L_PAREN:
            opened.append(token)
        elif token.token_type is TokenType.R_PAREN:
            if not opened:
                return token
            opened.pop()
    return opened[-1] if opened else None
