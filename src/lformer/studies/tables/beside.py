"""What the paper prints beside what was measured: three columns that stand together wherever it prints a value."""

from dataclasses import dataclass

from lformer.studies.rows import NOT_IN_PAPER
from lformer.studies.tables.cells import Cell, Column, Missing, Number, Spread, StudyTable


@dataclass(frozen=True)
class Beside:
    """One kind of value that the paper prints too."""

    heading: str
    unit: str = ""
    """In which ours stands, and the paper's too where `paper_unit` is not another."""
    paper_unit: str | None = None
    scale: float = 1.0
    """How many of our units are one of the paper's."""
    is_relative: bool = False
    """Whether the difference is in percent of the paper's value, and not in the unit itself."""

    @property
    def columns(self) -> list[Column]:
        """Ours, the paper's, the difference of the two."""
        paper_unit = self.unit if self.paper_unit is None else self.paper_unit
        difference = "%" if self.is_relative else self.unit.replace("%", "points")
        return [
            Column(_with_unit(self.heading, self.unit)),
            Column(_with_unit(f"paper: {self.heading}", paper_unit), is_paper=True),
            Column(_with_unit(f"Δ {self.heading}", difference), is_paper=True),
        ]

    def cells(self, ours: Cell, paper: Cell) -> list[Cell]:
        """The same of one row; where one of the two is missing, so is the difference, for the same reason."""
        return [ours, paper, self._difference(ours, paper)]

    def _difference(self, ours: Cell, paper: Cell) -> Cell:
        for cell in (paper, ours):
            if isinstance(cell, Missing):
                return cell
        assert isinstance(ours, Number | Spread)
        assert isinstance(paper, Number | Spread)
        value, printed = ours.value, self.scale * paper.value
        if self.is_relative:
            return Number(100 * (value / printed - 1), 1, is_signed=True)
        return Number(value - printed, ours.decimals, is_signed=True)


def table_beside(
    *, key: str, title: str, note: str, columns: list[Column], rows: list[list[Cell]], row_headings: int = 1
) -> StudyTable | None:
    """A table without the columns in which the paper has nothing at all; None of no rows."""
    if not rows:
        return None
    kept = [
        i
        for i, column in enumerate(columns)
        if not column.is_paper or any(row[i] != Missing(NOT_IN_PAPER) for row in rows)
    ]
    return StudyTable(
        key=key,
        title=title,
        note=note,
        columns=[columns[i] for i in kept],
        rows=[[row[i] for i in kept] for row in rows],
        row_headings=row_headings,
    )


def _with_unit(heading: str, unit: str) -> str:
    return f"{heading} ({unit})" if unit else heading
