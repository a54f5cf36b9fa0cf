"""Tables as Markdown, LaTeX, CSV and HTML: no name breaks a format, no number loses its value."""

import csv
import io
import re
from dataclasses import replace

import pytest

from lformer.studies.tables import Column, Missing, Number, Spread, StudyTable, Text, study_tables
from lformer.studies.tables.cells import shown, slug
from lformer.studies.tables.rendering import comma_separated, html, latex, markdown

from .synthetic import NASTY, controls_results, paper_results


@pytest.fixture(scope="module")
def paper() -> dict[str, StudyTable]:
    return {table.key: table for table in study_tables(paper_results())}


ODD = StudyTable(
    key="odd",
    title="a_b & <i>",
    note="50 % of $5",
    columns=[Column("name | x"), Column("value"), Column("ours"), Column("paper", is_paper=True)],
    rows=[
        [Text(NASTY), Number(-1234.5, 1), Spread(80.0, 0.25, is_best=True), Missing("why_not")],
        [Text("b"), Number(0.0003, None), Spread(79.0, None), Missing("why_not")],
        [Text("c"), Missing("other"), Missing("why_not"), Number(2, is_signed=True)],
    ],
)


def test_shown() -> None:
    cells = [Number(-1234.5, 1), Number(2, is_signed=True), Number(3e-4, None), Spread(80.0, 0.25), Spread(80.0, None)]
    assert [shown(found) for found in cells] == ["−1,234.5", "+2", "0.0003", "80.00 ± 0.25", "80.00"]
    zeros = [Number(-0.004, 2, is_signed=True), Number(0, 2, is_signed=True), Number(-0.006, 2, is_signed=True)]
    assert [shown(found) for found in zeros] == ["0.00", "0.00", "−0.01"]
    small = [Number(3e-9, 4, least=1e-4), Number(0.0002, 4, least=1e-4)]
    assert [shown(found) for found in small] == ["< 0.0001", "0.0002"]


def test_markdown() -> None:
    lines = markdown(ODD).splitlines()
    assert lines[0] == "## a\\_b &amp; &lt;i&gt;"
    assert lines[2] == "| name \\| x | value | ours | paper |"
    assert lines[3] == "| --- | ---: | ---: | ---: |"
    assert lines[4].startswith(
        '| T4 &lt;b&gt;&amp;"wide"\\_50%&#36;x&#36;\\|\\\\{#~^} | −1,234.5 | **80.00 ± 0.25** | –¹ |'
    )
    assert lines[6] == "| c | –² | –¹ | +2 |"
    assert "¹ why\\_not; ² other" in lines
    for line in lines[2:7]:
        assert len(re.findall(r"(?<!\\)\|", line)) == 5, line


def test_latex() -> None:
    text = latex(ODD)
    assert r"\caption{a\_b \& \textless{}i\textgreater{}}" in text
    assert r"T4 \textless{}b\textgreater{}\&" in text
    assert r"\_50\%\$x\$\textbar{}\textbackslash{}\{\#\textasciitilde{}\textasciicircum{}\}" in text
    assert r"$-1{,}234.5$ & $\mathbf{80.00 \pm 0.25}$ & --\textsuperscript{1} \\" in text
    assert r"\begin{tabular}{lrrr}" in text
    assert "\\resizebox" not in text
    assert text.count("{") - text.count("\\{") == text.count("}") - text.count("\\}")


def test_a_wide_latex_table_is_fitted(paper: dict[str, StudyTable]) -> None:
    text = latex(paper["accuracy-imdb-128"])
    assert r"\resizebox{\textwidth}{!}{\begin{tabular}" in text
    assert r"\end{tabular}}" in text
    assert latex(paper["parameter-matched"]).count("\\midrule") == 2, "below the headings and between the groups"


def test_csv_keeps_the_precision_and_the_reasons(paper: dict[str, StudyTable]) -> None:
    rows = list(csv.reader(io.StringIO(comma_separated(ODD))))
    assert rows[0] == ["table", "name | x", "value", "ours", "ours, std", "paper", "missing"]
    assert rows[1] == ["a_b & <i>", NASTY, "-1234.5", "80.0", "0.25", "", "paper: why_not"]
    assert rows[2][2:5] == ["0.0003", "79.0", ""]
    assert rows[3][1:] == ["c", "", "", "", "2", "value: other; ours: why_not"]
    assert all(len(row) == len(rows[0]) for row in rows)
    assert "missing" not in comma_separated(paper["seconds"]).splitlines()[0]


def test_whoever_gets_a_csv_alone_sees_what_the_data_are(paper: dict[str, StudyTable]) -> None:
    controls = {table.key: table for table in study_tables(controls_results())}
    for table in (*paper.values(), *controls.values()):
        for row in csv.DictReader(io.StringIO(comma_separated(table))):
            text = ", ".join([*row, *map(str, row.values())])
            assert ("AG News" in text) == ("71k subset" in text), table.key
    (row, *_) = csv.DictReader(io.StringIO(comma_separated(paper["accuracy-ag-news-256"])))
    assert "71k subset" in row["table"]


def test_html_has_values_to_sort_by() -> None:
    page = html(ODD)
    assert '<td data-value="-1234.5">−1,234.5</td>' in page
    assert '<td data-value="80.0"><strong>80.00 ± 0.25</strong></td>' in page
    assert '<td class="paper" data-value=""><span title="why_not">–<sup>1</sup></span></td>' in page
    assert "<b>" not in page
    assert page.count('scope="col"') == 4
    assert page.count('scope="row"') == 3


def test_keys_are_names_of_files() -> None:
    assert slug("../a b/<c>") == "a-b-c"
    with pytest.raises(AssertionError):
        replace(ODD, key="../odd")
