"""Runs as one HTML page: a table to sort, curves, confusion matrices, and what they were made with."""

from pathlib import Path
from typing import Any

from lformer.settings import UserError
from lformer.studies.facts import RunFacts, collect
from lformer.studies.figures.confusion import CONFUSION
from lformer.studies.figures.runs import accuracy_figure, confusion_figure, loss_figure
from lformer.studies.page import Section, environment_html, figure_html, render_page
from lformer.studies.tables.cells import Cell, Column, StudyTable, Text, number
from lformer.studies.tables.rendering import html
from lformer.train.files import write_text

# heading, decimals, value of a run
COLUMNS: list[tuple[str, int, Any]] = [
    ("parameters", 0, lambda run: run.result.get("parameters")),
    ("layer parameters", 0, lambda run: run.result.get("layer_parameters")),
    ("test accuracy", 4, lambda run: run.score("accuracy")),
    ("macro-F1", 4, lambda run: run.score("macro_f1")),
    ("test loss", 4, lambda run: run.score("loss")),
    ("training seconds", 1, lambda run: run.result.get("train_seconds")),
    ("tokens/s", 0, lambda run: run.result.get("tokens_per_second")),
]


def write_report(runs: list[Path], out: Path, title: str) -> Path:
    """Compare finished runs in one HTML file, which is replaced if it is there; returns its path."""
    if not runs:
        raise UserError("a report needs at least one run")
    facts = collect(runs)
    out.parent.mkdir(parents=True, exist_ok=True)
    write_text(out, render(facts, title))
    return out


def render(runs: list[RunFacts], title: str) -> str:
    """The page as text."""
    sections = [
        Section("runs", "Runs", html(comparison_table(runs))),
        Section("training", "Training", "\n".join(figure_html(svg, about) for svg, about in _curves(runs))),
        *(
            Section(
                f"confusion-{i}",
                f"Confusion on the test split: {run.name}",
                figure_html(confusion_figure(run), CONFUSION),
            )
            for i, run in enumerate(runs)
            if run.confusion is not None
        ),
        Section("made-with", "Made with", environment_html({run.name: run.environment for run in runs})),
    ]
    return render_page(title, sections)


def comparison_table(runs: list[RunFacts]) -> StudyTable:
    """One row a run."""
    rows: list[list[Cell]] = [
        [Text(run.name), *(number(read(run), decimals, "the run has none") for _, decimals, read in COLUMNS)]
        for run in runs
    ]
    columns = [Column("run"), *(Column(heading) for heading, _, _ in COLUMNS)]
    return StudyTable(key="runs", title="Runs", note="", columns=columns, rows=rows)


def _curves(runs: list[RunFacts]) -> list[tuple[str, str]]:
    found = [(loss_figure(runs), "Mean training loss of the steps since the last point.")]
    if any(run.accuracies for run in runs):
        found.append((accuracy_figure(runs), "Accuracy on the validation split after every epoch."))
    return found
