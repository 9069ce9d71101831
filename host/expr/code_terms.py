"""Terms over text, binary, booleans and decimals: which ones are allowed, and the codes of their literals.

Such a column is read as codes (`base/codes.py`). It stands alone on one side of `=` or `<>`, with a column of the same
family or a literal on the other side. Anything else is an error: a `KeyTypeError` if the column is used in another way,
a `PredicateError` that points at the term if its two sides do not fit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa

from millrace.host.base.codes import CODE_TYPES, DECIMAL, CodeTable, code_type
from millrace.host.base.errors import KeyTypeError, PredicateError
from millrace.host.base.types import Side
from millrace.host.base.words import KEY_TYPES, KeyType, key_type
from millrace.host.expr import evaluate as ev
from millrace.host.expr.condition import (
    Code,
    Column,
    Comparison,
    Condition,
    Constant,
    Expression,
    Number,
    columns_of,
)

Types = Mapping[tuple[Side, str], KeyType]
_FAMILIES = {str: "text", bytes: "binary", bool: "boolean"}
_LITERALS = {"text": "'…'", "binary": "X'…'", "boolean": "TRUE or FALSE"}
_CONSTANT_NAMES = {"text": "a text literal", "binary": "a binary literal", "boolean": "TRUE or FALSE"}
_EXPECTED: dict[ev.Kind, str] = {
    "exact": "a number",
    "double": "a number",
    "naive instant": "TIMESTAMP '…' or DATE '…'",
    "zoned instant": "TIMESTAMP '…' with an offset, such as TIMESTAMP '2024-01-01 00:00 +00:00',",
    "duration": "INTERVAL '…'",
}


def term_type(label: str, data_type: pa.DataType) -> KeyType:
    """Return the type of a condition's column; raise a `KeyTypeError` with its name and the types that work."""
    try:
        return code_type(data_type) or key_type(label, data_type)
    except KeyTypeError as error:
        raise KeyTypeError(
            f"column {label} has type {data_type}, which cannot be compared; the types that work are {KEY_TYPES}, and "
            f"in = and <> also {CODE_TYPES}: cast the column first"
        ) from error


def check_use(term: Comparison, types: Types) -> None:
    """Raise a `KeyTypeError` if a column of codes is not one side of `=` or `<>`. `types` may lack columns."""
    alone = (term.left, term.right) if term.op in ("=", "<>") else ()
    for column in columns_of(term):
        kind = types.get((column.side, column.name))
        if kind is not None and kind.domain == "code" and not any(column is side for side in alone):
            where = "in arithmetic and abs()" if term.op in ("=", "<>") else f"in a comparison by {term.op}"
            raise KeyTypeError(
                f"column {column.side}.{column.name} has type {kind.name}, which works only by itself on one side of = "
                f"and <>; the types that work {where} are {KEY_TYPES}: cast the column first"
            )


def check_term(term: Comparison, types: Types, text: str) -> None:
    """Raise an error unless the two sides of a comparison can be compared."""
    check_use(term, types)
    left, right = _code_type(term.left, types), _code_type(term.right, types)
    if left is None and right is None and not isinstance(term.left, Constant) and not isinstance(term.right, Constant):
        ev.check(term, types, text)
    elif not (left and _fits(left, term.right, types)) and not (right and _fits(right, term.left, types)):
        names = (_described(one, types, text) for one in (term.left, term.right))
        reason = f"{' cannot be compared with '.join(names)}: {_advice(term, types, text)}"
        raise PredicateError(reason, text, *term.span)


def with_codes(condition: Condition, types: Types, codes: CodeTable) -> Condition:
    """Return a checked condition whose literals beside columns of codes are codes."""
    bands = tuple(tuple(with_code(term, types, codes) for term in band) for band in condition.bands)
    return replace(condition, bands=bands)


def with_code(term: Comparison, types: Types, codes: CodeTable) -> Comparison:
    """Return a checked term with its literal as a code, or the same term if it has none."""
    left, right = _code_type(term.left, types), _code_type(term.right, types)
    if right is not None and isinstance(term.left, Constant | Number):
        return replace(term, left=_code(term.left, right, codes))
    if left is not None and isinstance(term.right, Constant | Number):
        return replace(term, right=_code(term.right, left, codes))
    return term


def _code(literal: Constant | Number, kind: KeyType, codes: CodeTable) -> Code:
    return Code(codes.literal(literal.value, kind), literal.span)


def _code_type(node: Expression, types: Types) -> KeyType | None:
    """Return the type of an operand that is a column of codes, else nothing."""
    kind = types[node.side, node.name] if isinstance(node, Column) else None
    return kind if kind is not None and kind.domain == "code" else None


def _is_decimal(kind: KeyType) -> bool:
    return kind.family.startswith(DECIMAL)


def _fits(kind: KeyType, partner: Expression, types: Types) -> bool:
    """Return whether a column of codes can be compared with an operand."""
    if isinstance(partner, Constant):
        return _FAMILIES[type(partner.value)] == kind.family
    if isinstance(partner, Number):
        return _is_decimal(kind)
    of_partner = _code_type(partner, types)
    return of_partner is not None and of_partner.family == kind.family


def _described(node: Expression, types: Types, text: str) -> str:
    """Return what an error calls an operand."""
    if isinstance(node, Column):
        return f"{node.side}.{node.name} of type {types[node.side, node.name].name}"
    if isinstance(node, Constant):
        return _CONSTANT_NAMES[_FAMILIES[type(node.value)]]
    return ev.kind_name(ev.kind_of(node, types, text))


def _advice(term: Comparison, types: Types, text: str) -> str:
    """Return what to do about two operands that do not fit; one of them is a column of codes or a constant."""
    for one, partner in ((term.left, term.right), (term.right, term.left)):
        kind, of_partner = _code_type(one, types), _code_type(partner, types)
        if kind and of_partner and _is_decimal(kind) and _is_decimal(of_partner):
            return "decimals must have the same scale: cast one of the columns first"
        if kind is not None and not any(columns_of(partner)):
            return f"write {_LITERALS.get(kind.family, 'one number')} there, or cast the column first"
        if kind is None and isinstance(partner, Constant):
            return f"write {_EXPECTED[ev.kind_of(one, types, text)]} there"
    return "cast one of the columns first, so that both have the same type"
