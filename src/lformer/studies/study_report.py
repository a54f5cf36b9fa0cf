"""A study as people read it: one HTML page, the tables for documents and papers, the figures as pictures."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lformer.settings import UserError
from lformer.studies.figures import StudyFigure, study_figures
from lformer.studies.figures.style import inline, png_file, svg_file
from lformer.studies.page import Section, environment_html, figure_html, render_page
from lformer.studies.results import FILE, Results
from lformer.studies.tables import StudyTable, study_tables
from lformer.studies.tables.rendering import comma_separated, html, latex, markdown, markdown_text
from lformer.train.files import write_bytes, write_text

FORMATS = {"md": markdown, "tex": latex, "csv": comma_separated}


@dataclass(frozen=True)
class Picture:
    """A figure, drawn: nearly all of the time that a report takes."""

    figure: StudyFigure
    svg: str
    png: bytes


def draw(results: Results) -> list[Picture]:
    """All figures of a study."""
    return [Picture(figure, figure.svg, png_file(figure.figure)) for figure in study_figures(results)]


def is_study(path: Path) -> bool:
    """Whether a path is to be read as a study: its file, or the folder that holds it."""
    return path.is_file() or (path / FILE).is_file()


def write_study_report(study: Path, out: Path | None = None, title: str | None = None) -> list[Path]:
    """The report of a study into a folder, `report` beside its results if none is named; returns what was written."""
    results = Results.read(study)
    out = out or (study if study.is_dir() else study.parent) / "report"
    return write_report_files(results, draw(results), out, title)


def write_report_files(results: Results, pictures: list[Picture], out: Path, title: str | None = None) -> list[Path]:
    """Tables, figures and the page, which comes last."""
    tables = study_tables(results)
    page = study_page(results, tables, pictures, title or f"lformer: the study {results.study}")
    written = []
    try:
        for folder in ("tables", "figures"):
            (out / folder).mkdir(parents=True, exist_ok=True)
        for table in tables:
            for suffix, render in FORMATS.items():
                written.append(out / "tables" / f"{table.key}.{suffix}")
                write_text(written[-1], render(table))
        for picture in pictures:
            for suffix, content in {"png": picture.png, "svg": svg_file(picture.svg)}.items():
                written.append(out / "figures" / f"{picture.figure.key}.{suffix}")
                write_bytes(written[-1], content)
        written.append(out / "report.html")
        write_text(written[-1], page)
    except OSError as error:
        raise UserError(f"the report cannot be written to {out}: {error.strerror}") from None
    return written


def write_markdown(studies: list[Path], file: Path) -> Path:
    """The tables of studies as one Markdown file, which is replaced; each below a heading of its own."""
    found = [Results.read(study) for study in studies]
    text = "\n".join(f"# The study {markdown_text(results.study)}\n\n{docs_tables(results)}" for results in found)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_text(file, text)
    except OSError as error:
        raise UserError(f"{file} cannot be written: {error.strerror}") from None
    return file


def docs_tables(results: Results) -> str:
    """All the tables as one Markdown text, whose first line says what they were made with."""
    lines = [f"{markdown_text(made_with(results))}\n", *(markdown(table) for table in study_tables(results))]
    return "\n".join(lines)


def study_page(results: Results, tables: list[StudyTable], pictures: list[Picture], title: str) -> str:
    """The page as text: every table with the figures that stand beside it."""
    sections = []
    for table in tables:
        beside = [_figure(picture) for picture in pictures if picture.figure.beside == table.key]
        sections.append(Section(table.key, table.title, "\n".join([html(table), *beside])))
    sections.append(Section("made-with", "Made with", environment_html(_named(results))))
    return render_page(title, sections, made_with(results))


def made_with(results: Results) -> str:
    """Study, command, device, versions and commit in one sentence."""
    sentences = [f"Study {results.study}, scale {results.scale}.", *map(_made_with, results.environments)]
    if results.scale != "full":
        sentences.append("A miniature only shows that every row runs.")
    return " ".join(sentences)


def _made_with(environment: dict[str, Any]) -> str:
    packages = {name: version for name, version in (environment.get("packages") or {}).items() if version}
    versions = [f"{name} {version}" for name, version in packages.items()]
    if environment.get("python"):
        versions.append(f"Python {environment['python']}")
    command = environment.get("command") or "an unknown command"
    return (
        f'Made by "{command}"'
        f" on {environment.get('device') or 'an unknown device'}"
        f" with {', '.join(versions) or 'unknown versions'}"
        f" at commit {environment.get('commit') or 'unknown'}."
    )


def _named(results: Results) -> dict[str, dict[str, Any]]:
    """The environments by the study, and by a number where there are several."""
    if len(results.environments) == 1:
        return {results.study: results.environments[0]}
    return {f"{results.study} {number}": found for number, found in enumerate(results.environments, 1)}


def _figure(picture: Picture) -> str:
    return figure_html(inline(picture.svg, picture.figure.title), picture.figure.caption)
