"""Tables as Markdown, LaTeX, CSV and HTML. Nothing here knows what the tables are about."""

import csv
import io
import re
from html import escape

from lformer.studies.tables.cells import DASH, MINUS, Cell, Missing, Number, Spread, StudyTable, Text, shown

RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
MARKDOWN = {
    **{mark: f"\\{mark}" for mark in "\\`*_[]|"},
    **{"&": "&amp;", "<": "&lt;", ">": "&gt;", "$": "&#36;", "\n": " "},
}
LATEX = {
    **{mark: f"\\{mark}" for mark in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "±": r"$\pm$",
    "×": r"$\times$",
    "Δ": r"$\Delta$",
    "α": r"$\alpha$",
    "ₖ": r"$_k$",
    "→": r"$\to$",
    MINUS: "$-$",
    DASH: "--",
    "\n": " ",
}
WIDE = 8  # columns from which a LaTeX table is fitted to the width of the text


def markdown(table: StudyTable, level: int = 2) -> str:
    """A heading, the table and its note."""
    numbers = table.reasons()
    lines = [
        [markdown_text(column.heading) for column in table.columns],
        ["---" if table.is_text(i) else "---:" for i in range(len(table.columns))],
        *([_markdown_cell(cell, numbers) for cell in row] for row in table.rows),
    ]
    parts = [f"{'#' * level} {markdown_text(table.title)}", "\n".join(f"| {' | '.join(line)} |" for line in lines)]
    if numbers:
        parts.append("; ".join(f"{str(n).translate(RAISED)} {markdown_text(reason)}" for reason, n in numbers.items()))
    if table.note:
        parts.append(markdown_text(table.note))
    return "\n\n".join(parts) + "\n"


def latex(table: StudyTable) -> str:
    """A floating table with booktabs, to be included in a document."""
    numbers = table.reasons()
    places = "".join("l" if table.is_text(i) else "r" for i in range(len(table.columns)))
    body = []
    for i, row in enumerate(table.rows):
        if i and table.row_headings > 1 and row[0] != table.rows[i - 1][0]:
            body.append("    \\midrule")
        body.append(f"    {' & '.join(_latex_cell(cell, numbers) for cell in row)} \\\\")
    opened, closed = (r"\resizebox{\textwidth}{!}{", "}") if len(table.columns) > WIDE else ("", "")
    notes = [f"\\textsuperscript{{{number}}}~{latex_text(reason)}." for reason, number in numbers.items()]
    notes += [latex_text(table.note)] if table.note else []
    lines = [
        "% needs \\usepackage{booktabs} and \\usepackage{graphicx}",
        "\\begin{table}[htbp]",
        "  \\centering",
        f"  \\caption{{{latex_text(table.title)}}}",
        f"  \\label{{tab:{table.key}}}",
        "  \\small",
        f"  {opened}\\begin{{tabular}}{{{places}}}",
        "    \\toprule",
        f"    {' & '.join(latex_text(column.heading) for column in table.columns)} \\\\",
        "    \\midrule",
        *body,
        "    \\bottomrule",
        f"  \\end{{tabular}}{closed}",
        *([f"  \\par\\smallskip\\parbox{{\\textwidth}}{{\\footnotesize {' '.join(notes)}}}"] if notes else []),
        "\\end{table}",
    ]
    return "\n".join(lines) + "\n"


def comma_separated(table: StudyTable) -> str:
    """Full precision; a deviation has a column of its own, and a last column says what is missing and why.

    The first column is the title: whoever gets this file alone must see what the data are.
    """
    spread = [any(isinstance(row[i], Spread) for row in table.rows) for i in range(len(table.columns))]
    headings = ["table"]
    for column, is_spread in zip(table.columns, spread, strict=True):
        headings += [column.heading, f"{column.heading}, std"] if is_spread else [column.heading]
    has_missing = bool(table.reasons())
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow([*headings, "missing"] if has_missing else headings)
    for row in table.rows:
        values = [table.title]
        absent = []
        for cell, column, is_spread in zip(row, table.columns, spread, strict=True):
            values += _plain_values(cell, is_spread)
            if isinstance(cell, Missing):
                absent.append(f"{column.heading}: {cell.reason}")
        writer.writerow([*values, "; ".join(absent)] if has_missing else values)
    return buffer.getvalue()


def html(table: StudyTable) -> str:
    """A table whose headings sort it, with its note below; it stands under a heading of the page."""
    numbers = table.reasons()
    head = "".join(
        f'<th scope="col"{_classes(table, i)}><button type="button">{escape(column.heading)}</button></th>'
        for i, column in enumerate(table.columns)
    )
    rows = "\n".join(
        f"<tr>{''.join(_html_cell(table, i, cell, numbers) for i, cell in enumerate(row))}</tr>" for row in table.rows
    )
    notes = "".join(f"<li>{escape(reason)}</li>" for reason in numbers)
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(table.title)}">'
        f'<table class="sortable" id="table-{escape(table.key)}"><thead><tr>{head}</tr></thead>\n'
        f"<tbody>\n{rows}\n</tbody></table></div>\n"
        + (f'<ol class="reasons">{notes}</ol>\n' if notes else "")
        + (f'<p class="note">{escape(table.note)}</p>' if table.note else "")
    )


def markdown_text(text: str) -> str:
    """Words in which nothing is a mark."""
    return "".join(MARKDOWN.get(letter, letter) for letter in text)


def latex_text(text: str) -> str:
    """Words in which nothing is a command."""
    return "".join(LATEX.get(letter, letter) for letter in text)


def _markdown_cell(cell: Cell, numbers: dict[str, int]) -> str:
    if isinstance(cell, Missing):
        return f"{DASH}{str(numbers[cell.reason]).translate(RAISED)}"
    text = markdown_text(shown(cell))
    return f"**{text}**" if _is_best(cell) else text


def _latex_cell(cell: Cell, numbers: dict[str, int]) -> str:
    if isinstance(cell, Missing):
        return f"--\\textsuperscript{{{numbers[cell.reason]}}}"
    if isinstance(cell, Text):
        return latex_text(cell.text)
    text = re.sub(r"(?<=\d),(?=\d)", "{,}", shown(cell)).replace(MINUS, "-").replace("±", r"\pm")
    return f"$\\mathbf{{{text}}}$" if _is_best(cell) else f"${text}$"


def _html_cell(table: StudyTable, column: int, cell: Cell, numbers: dict[str, int]) -> str:
    tag, scope = ("th", ' scope="row"') if column < table.row_headings else ("td", "")
    classes = _classes(table, column)
    if isinstance(cell, Missing):
        mark = f'<span title="{escape(cell.reason)}">{DASH}<sup>{numbers[cell.reason]}</sup></span>'
        return f'<{tag}{scope}{classes} data-value="">{mark}</{tag}>'
    value = "" if isinstance(cell, Text) else f' data-value="{float(cell.value)!r}"'
    text = escape(shown(cell))
    return f"<{tag}{scope}{classes}{value}>{f'<strong>{text}</strong>' if _is_best(cell) else text}</{tag}>"


def _classes(table: StudyTable, column: int) -> str:
    names = ["text"] * table.is_text(column) + ["paper"] * table.columns[column].is_paper
    return f' class="{" ".join(names)}"' if names else ""


def _plain_values(cell: Cell, is_spread: bool) -> list[str]:
    if isinstance(cell, Missing):
        values = [""]
    elif isinstance(cell, Text):
        values = [cell.text]
    elif isinstance(cell, Spread):
        return [repr(cell.mean), "" if cell.std is None else repr(cell.std)]
    else:
        values = [repr(cell.value)]
    return [*values, ""] if is_spread else values


def _is_best(cell: Cell) -> bool:
    return isinstance(cell, Number | Spread) and cell.is_best
