"""A table as values: what stands in every cell, and why nothing does; how it looks is the business of `rendering`."""

import re
from dataclasses import dataclass
from typing import TypeAlias

MINUS = "\N{MINUS SIGN}"
DASH = "\N{EN DASH}"


@dataclass(frozen=True)
class Text:
    """Words."""

    text: str


@dataclass(frozen=True)
class Number:
    """One value."""

    value: float
    decimals: int | None = 0
    """None for as many as the value needs."""
    is_signed: bool = False
    is_best: bool = False
    least: float | None = None
    """What is smaller is only said to be so."""


@dataclass(frozen=True)
class Spread:
    """A mean with its standard deviation; without one where there is a single value."""

    mean: float
    std: float | None
    decimals: int = 2
    is_best: bool = False

    @property
    def value(self) -> float:
        return self.mean


@dataclass(frozen=True)
class Missing:
    """Nothing, and why."""

    reason: str


Cell: TypeAlias = Text | Number | Spread | Missing


@dataclass(frozen=True)
class Column:
    """What the cells below one heading are."""

    heading: str
    is_paper: bool = False
    """Whether it holds what the paper prints, beside what was measured here."""


@dataclass(frozen=True, kw_only=True)
class StudyTable:
    """Named rows and columns."""

    key: str
    """The name of its files and of its place in a page; see `slug`."""
    title: str
    note: str
    """Plain sentences to stand with the table."""
    columns: list[Column]
    rows: list[list[Cell]]
    row_headings: int = 1
    """So many columns name the row."""

    def __post_init__(self) -> None:
        assert all(len(row) == len(self.columns) for row in self.rows), f"a row of {self.key} has another length"
        assert self.key == slug(self.key), f"{self.key} is no name for a file"

    def reasons(self) -> dict[str, int]:
        """Why cells are missing, numbered from 1 in the order of the table."""
        found = dict.fromkeys(cell.reason for row in self.rows for cell in row if isinstance(cell, Missing))
        return {reason: number for number, reason in enumerate(found, 1)}

    def is_text(self, column: int) -> bool:
        """Whether a column holds words, and is to be set flush left."""
        cells = [row[column] for row in self.rows if not isinstance(row[column], Missing)]
        return column < self.row_headings or (bool(cells) and all(isinstance(cell, Text) for cell in cells))


def slug(text: str) -> str:
    """The text as a name for files: letters, digits and single hyphens."""
    return re.sub(r"[^A-Za-z0-9]+", "-", text).strip("-")


def number(
    value: float | None, decimals: int | None, reason: str, *, is_signed: bool = False, least: float | None = None
) -> Cell:
    """A number, or the reason why there is none."""
    return Missing(reason) if value is None else Number(value, decimals, is_signed, least=least)


def shown(cell: Text | Number | Spread) -> str:
    """The cell as plain text."""
    if isinstance(cell, Text):
        return cell.text
    if isinstance(cell, Spread):
        mean = f"{cell.mean:,.{cell.decimals}f}"
        text = mean if cell.std is None else f"{mean} ± {cell.std:,.{cell.decimals}f}"
    elif cell.least is not None and cell.value < cell.least:
        text = f"< {cell.least:.{cell.decimals}f}"
    else:
        value = cell.value if cell.decimals is None else round(cell.value, cell.decimals) or 0.0  # no minus before 0
        sign = "+" if cell.is_signed and value else ""
        text = f"{value:{sign}g}" if cell.decimals is None else f"{value:{sign},.{cell.decimals}f}"
    return text.replace("-", MINUS)
