"""Runs as one HTML page: a table to sort, curves, confusion matrices, and what they were made with.

The page holds everything that it shows and runs from a file, without a network.
"""

from html import escape
from pathlib import Path
from string import Template
from typing import Any

from lformer.settings import UserError
from lformer.studies.facts import RunFacts, collect
from lformer.studies.figures import accuracy_figure, confusion_figure, loss_figure
from lformer.studies.page import PAGE
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
        _section("Runs", comparison_table(runs)),
        _section("Training", "\n".join(_figure(svg, about) for svg, about in _curves(runs))),
        *(
            _section(f"Confusion on the test split: {run.name}", _figure(confusion_figure(run), CONFUSION))
            for run in runs
            if run.confusion is not None
        ),
        _section("Made with", environment_table(runs)),
    ]
    return Template(PAGE).substitute(title=escape(title), body="\n".join(sections))


CONFUSION = "Rows are true classes, columns predicted ones; the colour is the share of the row, the number a count."


def comparison_table(runs: list[RunFacts]) -> str:
    """One row a run; a click on a heading sorts."""
    headings = ["run", *(name for name, _, _ in COLUMNS)]
    head = "".join(f'<th scope="col"><button type="button">{escape(name)}</button></th>' for name in headings)
    rows = "\n".join(_row(run) for run in runs)
    return f'<table class="sortable"><thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\n</tbody></table>'


def environment_table(runs: list[RunFacts]) -> str:
    """Versions, device and command; what is the same in all runs once, what differs for each."""
    merged: dict[str, dict[str, str]] = {}
    for run in runs:
        for name, value in _flat(run.environment).items():
            merged.setdefault(name, {})[run.name] = str(value)
    rows = []
    for name, values in merged.items():
        if len(set(values.values())) == 1 and len(values) == len(runs):
            shown = [next(iter(values.values()))]
        else:
            shown = [f"{run}: {value}" for run, value in values.items()]
        rows.append(f'<tr><th scope="row">{escape(name)}</th><td>{"<br>".join(map(escape, shown))}</td></tr>')
    return f'<table class="plain"><tbody>{"".join(rows)}</tbody></table>'


def _curves(runs: list[RunFacts]) -> list[tuple[str, str]]:
    found = [(loss_figure(runs), "Mean training loss of the steps since the last point.")]
    if any(run.accuracies for run in runs):
        found.append((accuracy_figure(runs), "Accuracy on the validation split after every epoch."))
    return found


def _row(run: RunFacts) -> str:
    cells = [f'<th scope="row">{escape(run.name)}</th>']
    for _, decimals, read in COLUMNS:
        value = read(run)
        shown = "–" if value is None else f"{value:,.{decimals}f}"
        cells.append(f'<td data-value="{"" if value is None else float(value)!r}">{shown}</td>')
    return f"<tr>{''.join(cells)}</tr>"


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            flat |= _flat(value, prefix)
        elif value is not None:
            flat[f"{prefix}{name}"] = value
    return flat


def _section(heading: str, content: str) -> str:
    return f"<section><h2>{escape(heading)}</h2>\n{content}\n</section>"


def _figure(svg: str, caption: str) -> str:
    return f"<figure>{svg}<figcaption>{escape(caption)}</figcaption></figure>"
