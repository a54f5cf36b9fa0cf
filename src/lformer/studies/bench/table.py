"""The rows of a shape as a table for a terminal."""

from typing import Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from lformer.studies.bench.limits import MEASURES

BUSY = 1.5  # longest over shortest sample of the baseline from which on a reader is warned
LEAST_WIDTH = 140  # columns, where the output is a file or a pipe


def console() -> Console:
    found = Console(highlight=False)
    return found if found.is_terminal else Console(highlight=False, width=max(LEAST_WIDTH, found.width))


def shape_table(found: dict[str, Any], settings: dict[str, Any]) -> RenderableType:
    """Table, notes and headlines of one shape of a result. Pairs are forward pass / training step."""
    shape = found["shape"]
    layers = f", {shape['layers']} layers" if shape["kind"] == "model" else ""
    dropout = f", dropout {settings['dropout']}" if settings["dropout"] else ""
    rest = f"{shape['heads']} heads{layers}, {settings['dtype']}{dropout}"
    title = f"{shape['kind']} {shape['name']} (B x T x d), {rest}"
    rates = [row[measure]["flops_per_second"] or 0.0 for row in found["rows"] for measure in MEASURES]
    unit, scale = ("TFLOP/s", 1e-12) if max(rates) >= 1e12 else ("GFLOP/s", 1e-9)
    table = Table(title=title, box=box.SIMPLE, padding=(0, 1, 0, 0))
    for name in ("", "backend", "mode"):
        table.add_column(name)
    for name in ("parameters", "forward us", "training us", "dense / this", unit, "GB/s", "of limit", "peak MB"):
        table.add_column(name, justify="right", no_wrap=True)
    notes: list[str] = []
    previous = None
    for row in found["rows"]:
        if previous is not None and previous != row["name"]:
            table.add_section()
        previous = row["name"]
        table.add_row(*_cells(row, notes, scale))
    lines = [f"[{index + 1}] {note}" for index, note in enumerate(notes)]
    return Group(table, *[Text(line) for line in [*lines, *headlines(found), ""]])


def headlines(found: dict[str, Any]) -> list[str]:
    """How much faster than dense, a line for every tube length."""
    lines = []
    for measure, dense in found["baseline"].items():
        seconds = dense and found["rows"][dense["row"]][measure]["seconds"]
        if seconds and seconds["max"] > BUSY * seconds["min"]:
            spread = seconds["max"] / seconds["min"]
            lines.append(f"the samples of dense, {measure}, vary by a factor of {spread:.1f}: is the machine busy?")
    names = {"forward": "forward", "training": "training step"}
    for p, best in found["headlines"].items():
        parts = []
        for measure, name in names.items():
            ours, dense = best[measure], found["baseline"][measure]
            if ours is None or dense is None:
                parts.append(f"{name} not measured")
                continue
            parts.append(f"{name} {ours['ratio']:.2f}x ({ours['backend']}, {ours['mode']}; dense {dense['mode']})")
        lines.append(f"p={p} against dense: {', '.join(parts)}")
    return lines


def _cells(row: dict[str, Any], notes: list[str], scale: float) -> list[str]:
    """The cells of a row; what does not fit into one is added to the notes and gets their numbers."""
    marks = []
    for text in _texts(row):
        if text not in notes:
            notes.append(text)
        marks.append(f" [{notes.index(text) + 1}]")
    found = [row[measure] for measure in MEASURES]
    medians = [each["seconds"]["median"] if each["seconds"] else None for each in found]

    def pair(name: str, form: str, factor: float = 1) -> str:
        return " / ".join(_number(each[name], form, factor) for each in found)

    return [
        (row["name"] + "".join(marks)).replace("[", r"\["),  # rich would take it for markup
        row["backend"],
        _mode(row),
        _number(row["parameters"], ",.0f"),
        *[_number(median, ",.1f", 1e6) for median in medians],
        pair("ratio", ".2f"),
        pair("flops_per_second", ",.1f", scale),
        pair("bytes_per_second", ",.1f", 1e-9),
        pair("share_of_limit", ".0%"),
        _number(row["peak_bytes"], ",.0f", 1e-6),
    ]


def _texts(row: dict[str, Any]) -> list[str]:
    reasons = {measure: row[measure]["reason"] for measure in MEASURES if row[measure]["reason"]}
    if len(reasons) == len(MEASURES) and len(set(reasons.values())) == 1:
        return [*row["notes"], next(iter(reasons.values()))]
    return [*row["notes"], *[f"{measure}: {text}" for measure, text in reasons.items()]]


def _mode(row: dict[str, Any]) -> str:
    mode = {"eager": "eager", "default": "compiled"}.get(row["mode"], f"compiled ({row['mode']})")
    captured = [row[measure]["captured"] for measure in MEASURES]
    if all(captured):
        return f"{mode}, graph"
    return f"{mode}, part graph" if any(captured) else mode


def _number(value: float | None, form: str, factor: float = 1) -> str:
    return "-" if value is None else format(value * factor, form)
