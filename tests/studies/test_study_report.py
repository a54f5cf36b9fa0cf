"""A study becomes a page, tables and figures, whole and the same every time."""

import json
import re
import struct
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import pytest

from lformer.settings import UserError
from lformer.studies import docs_tables, write_markdown, write_study_report
from lformer.studies.figures import study_figures
from lformer.studies.results import Results
from lformer.studies.tables import study_tables

from .synthetic import controls_results, paper_results


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The study `controls`, with its report."""
    folder = tmp_path_factory.mktemp("controls")
    controls_results().write(folder / "results.json")
    write_study_report(folder)
    return folder


def test_everything_is_written(folder: Path) -> None:
    results = controls_results()
    found = {str(path.relative_to(folder / "report")) for path in (folder / "report").rglob("*") if path.is_file()}
    tables = {f"tables/{table.key}.{end}" for table in study_tables(results) for end in ("md", "tex", "csv")}
    figures = {f"figures/{figure.key}.{end}" for figure in study_figures(results) for end in ("png", "svg")}
    assert found == {"report.html", *tables, *figures}, "no draft stays behind"
    for name in figures:
        path = folder / "report" / name
        if path.suffix == ".svg":
            ElementTree.fromstring(path.read_text(encoding="utf-8"))
        else:
            width, height = struct.unpack(">II", path.read_bytes()[16:24])
            assert min(width, height) > 400


def test_figures_of_the_paper() -> None:
    results = paper_results()
    figures = {figure.key: figure for figure in study_figures(results)}
    keys = {table.key for table in study_tables(results)}
    kinds = ("parameters-imdb-128", "parameters-ag-news-256", "positions-imdb-128", "gap-by-width", "curves-imdb-128")
    assert {*kinds, "curves-ag-news-256", "confusion-imdb-128", "confusion-ag-news-768"} <= set(figures)
    assert {figure.beside for figure in figures.values()} <= keys, "each stands with a table that is there"
    assert "No curves were kept of Std" in figures["curves-ag-news-768"].caption
    for key, figure in figures.items():
        words = figure.figure.get_suptitle()
        assert ("71k subset" in words.replace("\n", " ")) == ("ag-news" in key or key == "gap-by-width"), key


def test_figures_of_controls() -> None:
    keys = {figure.key for figure in study_figures(controls_results())}
    group = "ag-news-256-tuned"
    assert {f"rows-{group}", f"tubes-{group}", f"compressed-{group}-Std", "same-size"} <= keys
    assert not any(key.startswith("curves") for key in keys), "there are none"


def test_a_study_of_nothing_still_has_a_page(tmp_path: Path) -> None:
    Results(study="empty", scale="full", groups={}, runs=[]).write(tmp_path / "results.json")
    assert write_study_report(tmp_path) == [tmp_path / "report" / "report.html"]


def test_confusion_of_other_sizes_is_left_out() -> None:
    results = paper_results()
    results = replace(results, runs=[replace(run, confusion=[]) for run in results.runs])
    assert not any(figure.key.startswith("confusion") for figure in study_figures(results))


def test_a_figure_is_the_same_in_the_page_and_in_its_file(folder: Path) -> None:
    """Drawn once; the file has a white ground, the page has its own."""
    page = (folder / "report" / "report.html").read_text(encoding="utf-8")
    for figure in study_figures(controls_results()):
        file = (folder / "report" / "figures" / f"{figure.key}.svg").read_text(encoding="utf-8")
        lines = re.findall(r' d="([^"]+)"', file)
        assert lines
        assert all(line in page for line in lines), figure.key
        assert file.count('<rect width="100%" height="100%" fill="white"/>') == 1
        assert '<rect width="100%"' not in page


def test_the_page_is_safe_and_whole(folder: Path) -> None:
    page = (folder / "report" / "report.html").read_text(encoding="utf-8")
    assert "T4 &lt;b&gt;&amp;" in page
    assert "<b>" not in page
    for target in re.findall(r'<a href="#([^"]+)"', page):
        assert f'<section id="{target}">' in page
    ids = re.findall(r' id="([^"]+)"', page)
    assert len(set(ids)) == len(ids)
    assert len(re.findall(r'<svg role="img" aria-label="[^"]+"', page)) == page.count("<figcaption>") > 3
    assert 'id="show-paper"' not in page, "nothing here is in the paper"


def test_the_same_results_give_the_same_files(folder: Path, tmp_path: Path) -> None:
    for path in write_study_report(folder / "results.json", tmp_path):
        assert path.read_bytes() == (folder / "report" / path.relative_to(tmp_path)).read_bytes(), path.name


def test_markdown_begins_with_what_it_was_made_with(folder: Path, tmp_path: Path) -> None:
    text = docs_tables(paper_results())
    first = text.splitlines()[0]
    for fact in ("lformer reproduce paper --out runs/paper", "NVIDIA H200", "torch 2.8.0", "commit 0123456789abcdef"):
        assert fact in first
    assert text.count("\n## ") == len(study_tables(paper_results()))
    (tmp_path / "results.md").write_text("old")
    write_markdown([folder], tmp_path / "results.md")
    text = (tmp_path / "results.md").read_text(encoding="utf-8")
    assert text == f"# The study controls\n\n{docs_tables(controls_results())}"


def test_studies_share_one_markdown_file(folder: Path, tmp_path: Path) -> None:
    paper_results().write(tmp_path / "results.json")
    write_markdown([tmp_path, folder], tmp_path / "results.md")
    text = (tmp_path / "results.md").read_text(encoding="utf-8")
    assert re.findall("^# (.*)", text, re.MULTILINE) == ["The study paper", "The study controls"]
    assert text.index("# The study controls") < text.index("## Learning rates")
    assert docs_tables(paper_results()) in text


def test_what_is_no_study(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        write_study_report(tmp_path)
    path = tmp_path / "results.json"
    path.write_text('{"format": "lformer-study", ')
    with pytest.raises(UserError, match="does not hold"):
        write_study_report(tmp_path)
    path.write_text("[1]")
    with pytest.raises(UserError, match="does not hold"):
        write_study_report(tmp_path)
    controls_results().write(path)
    path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), "version": 7}))
    with pytest.raises(UserError, match="version 7"):
        write_study_report(tmp_path)
    assert not (tmp_path / "report").exists()
