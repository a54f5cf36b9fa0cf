"""Columns to texts and labels: every value is checked, and a wrong one is named by file and row."""

from typing import Any

from lformer.data.tables import Table
from lformer.settings import UserError


def text_fields(table: Table, names: list[str]) -> list[tuple[str, ...]]:
    """The texts of every row, one for each of the columns."""
    for name in names:
        for row, value in enumerate(table.columns[name]):
            if not isinstance(value, str):
                kind = "null" if value is None else type(value).__name__
                raise UserError(f"{table.where(row)}: {name!r} is no text but {kind}; write a string")
            if not value.isascii() and not is_unicode(value):
                raise UserError(f"{table.where(row)}: {name!r} has half of a surrogate pair; write whole characters")
    return list(zip(*(table.columns[name] for name in names), strict=True))


def is_unicode(text: str) -> bool:
    """Whether the text can be written as UTF-8: JSON's escapes, and bytes that were kept, can make others."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def label_keys(table: Table, name: str) -> list[str]:
    """The label of every row as a string: 1, 1.0 and "1" are the same label."""
    return [_label_key(value, table, name, row) for row, value in enumerate(table.columns[name])]


def _label_key(value: Any, table: Table, name: str, row: int) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float) and value.is_integer():  # pandas writes integers so when one is missing
        return str(int(value))
    if isinstance(value, str) and value.strip() and is_unicode(value):
        return value
    shown = repr(value)[:60]
    raise UserError(f"{table.where(row)}: the label {name!r} is {shown}; write a string or an integer")
