"""Error texts for what a condition does not allow: by token, and texts that several modules share."""

from __future__ import annotations

from sqlglot import TokenType

ALLOWED = (
    "a condition is comparisons (= < <= > >= <> BETWEEN) joined by AND, or an OR of bands, "
    "of columns r.x and s.x, numbers, + - *, abs(…), TIMESTAMP '…', DATE '…' and INTERVAL '…'; "
    "beside = and <> also '…', X'…', TRUE and FALSE"
)
BITWISE = "of the operators only + - * are allowed: compute the column before the join"
CAST = "only CAST('…' AS TIMESTAMP) and CAST('…' AS DATE) are allowed: cast columns before the join"
TEXT_LITERAL = "a text literal must be one side of = or <>, alone; for a time write TIMESTAMP '…' or DATE '…'"
_NATIONAL = "a text literal has no N before it: write '…'"
_BINARY_LITERAL = "a binary literal must be one side of = or <>, alone"
_BOOLEAN_LITERAL = "TRUE and FALSE must be one side of = or <>, alone; as a term of its own leave it out"
_PARAMETER = "a parameter is not supported: write the value itself"
_NULL_TEST = "is not allowed, only = < <= > >= <> BETWEEN are: nulls never match; filter them before the join"
_DIVISION = "division is not allowed, only + - *: multiply both sides, or compute the column before the join"
_LIKE = "LIKE is not allowed, text works in = and <> only: filter before the join"

CONSTANT_REASONS: dict[type, str] = {str: TEXT_LITERAL, bytes: _BINARY_LITERAL, bool: _BOOLEAN_LITERAL}

# At the start of an operand or a term.
PREFIX_REASONS: dict[TokenType, str] = {
    TokenType.STRING: TEXT_LITERAL,
    TokenType.NATIONAL_STRING: _NATIONAL,
    TokenType.HEX_STRING: _BINARY_LITERAL,
    TokenType.NULL: "a comparison with NULL is never true: leave the term out",
    TokenType.TRUE: _BOOLEAN_LITERAL,
    TokenType.FALSE: _BOOLEAN_LITERAL,
    TokenType.NOT: "NOT is not allowed: write the opposite comparison, such as >= for NOT <",
    TokenType.CASE: f"CASE is not allowed: {ALLOWED}; compute the column before the join",
    TokenType.TILDE: BITWISE,
    TokenType.STAR: "`*` does not name a column: write one, such as r.x",
    TokenType.PLACEHOLDER: _PARAMETER,
    TokenType.PARAMETER: _PARAMETER,
}

# After an operand or a term.
INFIX_REASONS: dict[str, str] = {
    "/": _DIVISION,
    "DIV": _DIVISION,
    "%": "the remainder `%` is not allowed, only + - *: compute the column before the join",
    "IS": f"IS {_NULL_TEST}",
    "ISNULL": f"ISNULL {_NULL_TEST}",
    "NOTNULL": f"NOTNULL {_NULL_TEST}",
    "<=>": f"`<=>` {_NULL_TEST}",
    "IN": "IN is not allowed: write an OR such as s.x = r.x + 1 OR s.x = r.x + 2, or filter before the join",
    "LIKE": _LIKE,
    "ILIKE": _LIKE,
    "NOT": "NOT is not allowed: write the opposite comparison, or filter before the join",
    "::": CAST,
    "==": "`==` is not allowed: write = for equality",
    "AT": "AT TIME ZONE is not allowed: write TIMESTAMP '… +02:00', or convert the column before the join",
    **dict.fromkeys(("&", "|", "^", "<<", ">>", "||"), BITWISE),
    "AS": "an alias is not allowed: leave AS out",
    "ESCAPE": _LIKE,
}

# Rejected before sqlglot parses: it would split the text, or log its own warnings about JSON paths. Empty: no advice.
BANNED: dict[TokenType, str] = {
    TokenType.SEMICOLON: "`;` is not allowed: give one condition without it",
    TokenType.L_BRACKET: "a column's elements cannot be compared: compute the column before the join",
    TokenType.COLON: _PARAMETER,
    TokenType.L_BRACE: "",
    TokenType.ARROW: "",
    TokenType.DARROW: "",
    TokenType.HASH_ARROW: "",
    TokenType.DHASH_ARROW: "",
}


def not_allowed_here(written: str, hint: str = "") -> str:
    """Return the error text for a text that is not allowed at its position."""
    return f"`{written}` is not allowed here{hint}: {ALLOWED}"


def not_a_number(written: str) -> str:
    """Return the error text for a text that begins like a number but is not a number."""
    return f"`{written}` is not a number: write one such as 1000, 1.5, .5 or 1e3"


def quote_advice(name: str) -> str:
    """Return the error text for a name that SQL accepts only in quotes."""
    return f'`{name}` is not allowed here: if it is a column, write its name in double quotes, r."{name}"'
