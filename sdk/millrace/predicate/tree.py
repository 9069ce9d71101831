"""The tokens to sqlglot's tree, with our words and a place for what sqlglot cannot parse."""

from __future__ import annotations

from sqlglot import Dialect, Token, TokenType, exp
from sqlglot.errors import ParseError

from millrace.host.base.errors import PredicateError
from millrace.host.expr.condition import Span
from millrace.predicate.refusals import ALLOWED, TEXT_LITERAL, cannot_stand, not_a_number, quote_advice
from millrace.predicate.tokens import COMPARE, QUOTED, span_of

_WANT_LEFT = frozenset({*COMPARE, "AND", "OR", "*", "/", "%", "|", "&", "^", "BETWEEN", ")"})
_WANT_RIGHT = _WANT_LEFT - {")"} | {"+", "-", "(", "NOT"}
_MEANT = {"=>": "; did you mean >=", "&&": "; did you mean AND"}


def parse_tree(text: str, tokens: list[Token]) -> exp.Expr:
    """sqlglot's tree of the text."""
    try:
        trees = Dialect.get_or_raise(None).parser().parse_into(exp.Condition, tokens, text)
    except ParseError as error:
        raise _failure(text, tokens, error) from None
    if len(trees) != 1 or trees[0] is None:
        reason = f"`{tokens[0].text}` does not begin a condition: {ALLOWED}"
        raise PredicateError(reason, text, *span_of(tokens[0]))
    return trees[0]


def _failure(text: str, tokens: list[Token], error: ParseError) -> PredicateError:
    """Our words, and the place, for what sqlglot says."""
    details = error.errors[0] if error.errors else {}
    said = str(details.get("description") or "")
    place = (details.get("line"), details.get("col"))
    at = next((i for i, t in enumerate(tokens) if (t.line, t.col) == place), len(tokens) - 1)
    if (hole := _hole(tokens, at if not said.startswith("Required") else len(tokens))) is not None:
        return PredicateError(f"an operand is missing {hole[0]}: write a column or a literal there", text, *hole[1])
    if (lone := _unbalanced(tokens)) is not None:
        other = "(" if lone.text == ")" else ")"
        reason = f"`{lone.text}` has no matching `{other}`: add it, or remove this"
        return PredicateError(reason, text, *span_of(lone))
    if at and (found := _joined_failure(text, tokens, at)) is not None:
        return found
    if said.startswith("The number of provided arguments"):
        reason = "too many arguments: abs takes one, and no other function is allowed"
        return PredicateError(reason, text, *span_of(tokens[at]))
    token = tokens[at - 1] if said.startswith("Invalid numeric") and at else tokens[at]
    reason = cannot_stand(text[slice(*span_of(token))], _MEANT.get(token.text, ""))
    if token.token_type in (TokenType.STRING, TokenType.NATIONAL_STRING):
        reason = TEXT_LITERAL
    return PredicateError(reason, text, *span_of(token))


def _joined_failure(text: str, tokens: list[Token], at: int) -> PredicateError | None:
    """What is wrong with token `at` and the number that it is written next to: `1_000` or `r.2a`."""
    before, token = tokens[at - 1], tokens[at]
    joined = before.token_type is TokenType.NUMBER and before.end + 1 == token.start
    if not joined or not token.text.isidentifier():
        return None
    span = span_of(before, token)
    written = text[slice(*span)]
    named = at > 1 and tokens[at - 2].token_type is TokenType.DOT
    return PredicateError(quote_advice(written) if named else not_a_number(written), text, *span)


def _hole(tokens: list[Token], last: int) -> tuple[str, Span] | None:
    """The first place up to token `last` where an operand is missing, in words and as a span."""
    words = [_word(tokens, i) for i in range(min(last + 1, len(tokens)))]
    for i, word in enumerate(words):
        if word in _WANT_LEFT and i == 0:
            return f"before `{word}`", span_of(tokens[i])
        if word in _WANT_LEFT and words[i - 1] in _WANT_RIGHT:
            return f"between `{words[i - 1]}` and `{word}`", span_of(tokens[i - 1], tokens[i])
    if len(words) == len(tokens) and words[-1] in _WANT_RIGHT:
        return f"after `{words[-1]}`", span_of(tokens[-1])
    return None


def _word(tokens: list[Token], at: int) -> str:
    """A token's text in capitals; empty for what is in quotes and for a name after a dot."""
    named = at > 0 and tokens[at - 1].token_type is TokenType.DOT
    return "" if named or tokens[at].token_type in QUOTED else tokens[at].text.upper()


def _unbalanced(tokens: list[Token]) -> Token | None:
    """The first closing parenthesis that nothing opened, or else the last one that nothing closes."""
    opened: list[Token] = []
    for token in tokens:
        if token.token_type is TokenType.L_PAREN:
            opened.append(token)
        elif token.token_type is TokenType.R_PAREN:
            if not opened:
                return token
            opened.pop()
    return opened[-1] if opened else None
