"""Speed and memory beside the paper's, as measured and relative to Std, and where the time of the study went."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from lformer.studies.published import PUBLISHED, SETTINGS, Published
from lformer.studies.results import Measurement, Results
from lformer.studies.rows import NO_SEED, NOT_IN_PAPER, Row, data_of, find_row, group_rows, title_of, why_not_measured
from lformer.studies.tables.beside import Beside, table_beside
from lformer.studies.tables.cells import Cell, Column, Missing, Number, StudyTable, Text, number
from lformer.studies.tables.parameters import RATIO, counts_note, encoder, encoder_cells
from lformer.train import Recipe

NO_MEMORY = "no GPU, no peak of its memory"
MACHINES = (
    "Different hardware and software: compare the models of one column, not the columns; the table relative to Std is"
    " for that."
)


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One thing that is measured."""

    beside: Beside
    ours: Callable[[Measurement], float | None]
    printed: Callable[[Published], float | None]
    decimals: tuple[int, int]
    """Of ours, and of the paper's."""


THROUGHPUT = Figure(
    beside=Beside("tokens/s", "K", is_relative=True),
    ours=lambda found: found.tokens_per_second / 1e3,
    printed=lambda paper: paper.tokens_per_second,
    decimals=(1, 0),
)
EPOCH = Figure(
    beside=Beside("epoch", "s", is_relative=True),
    ours=lambda found: found.epoch_seconds,
    printed=lambda paper: paper.epoch_seconds,
    decimals=(3, 0),
)
EPOCH_AGAIN = replace(EPOCH, printed=lambda paper: paper.epoch_seconds_again or paper.epoch_seconds)
MEMORY = Figure(
    beside=Beside("peak memory", "GB", is_relative=True),
    ours=lambda found: None if found.peak_memory_bytes is None else found.peak_memory_bytes / 1e9,
    printed=lambda paper: paper.memory_gb,
    decimals=(2, 2),
)
INFERENCE = Figure(
    beside=Beside("inference", "s", is_relative=True),
    ours=lambda found: found.inference_seconds,
    printed=lambda paper: paper.inference_seconds,
    decimals=(3, 1),
)
NO_STD = Missing("Std was not measured")


def efficiency_table(results: Results) -> StudyTable | None:
    """The paper's table efficiency, for every row that was measured."""
    figures = [THROUGHPUT, EPOCH, MEMORY]
    cells = []
    for row in _rows(results):
        dense = find_row(results, row.group, "Std")
        size, ratio = encoder_cells(row, dense)
        names: list[Cell] = [Text(title_of(results, row.group)), Text(row.model)]
        measured = [cell for figure in figures for cell in _beside(results, row, figure)]
        cells.append([*names, *size, *ratio, *measured, *_batches(row)])
    columns = [Column("data"), Column("model"), *encoder().columns, *RATIO.columns]
    columns += [column for figure in figures for column in figure.beside.columns]
    columns += [Column("batch"), Column("paper: batch", is_paper=True)]
    note = (
        f"{data_of(results, *_groups(results))} {_machines(results)} {MACHINES} Training"
        " alone on the machine. Tokens are places of batches padded to the longest text that the data allow, as the"
        " paper counts them. Batches are those of training / evaluation. A GB is 10^9 bytes."
        f"{_epochs(results)} {counts_note(results)}"
    )
    title = "Efficiency: throughput, epochs and memory"
    return table_beside(key="efficiency", title=title, note=note, columns=columns, rows=cells, row_headings=2)


def runtime_table(results: Results) -> StudyTable | None:
    """The paper's table runtime_full: an epoch, the peak of memory, and the test split once."""
    figures = [EPOCH_AGAIN, MEMORY, INFERENCE]
    cells = []
    for row in _rows(results):
        names: list[Cell] = [Text(title_of(results, row.group)), Text(row.model)]
        size, _ = encoder_cells(row, None)
        measured = [cell for figure in figures for cell in _beside(results, row, figure)]
        cells.append([*names, *size, *measured])
    columns = [Column("data"), Column("model"), *encoder().columns]
    columns += [column for figure in figures for column in figure.beside.columns]
    note = (
        f"{data_of(results, *_groups(results))} {_machines(results)} {MACHINES} Inference is one pass over the test"
        " split, mean of three, in evaluation batches of texts of similar length, each padded to its longest; the paper"
        f" pads all to 128.{_epochs(results)} {counts_note(results)}"
    )
    twice = [
        f"{title_of(results, group)}, {model}: {published.epoch_seconds:g} s there, {published.epoch_seconds_again:g} s"
        for group, model, published in _published(results)
        if published.epoch_seconds_again is not None
    ]
    if twice:
        note += f" Its tables efficiency and runtime_full do not agree on an epoch ({'; '.join(twice)} here)."
    title = "Runtime: epochs, memory and inference"
    return table_beside(key="runtime", title=title, note=note, columns=columns, rows=cells, row_headings=2)


def relative_speed_table(results: Results) -> StudyTable | None:
    """The same divided by Std of the group, which can be compared across machines."""
    figures = [THROUGHPUT, EPOCH, INFERENCE, MEMORY]
    besides = [Beside(f"{figure.beside.heading} / Std") for figure in figures]
    cells: list[list[Cell]] = []
    for row in _rows(results):
        dense = find_row(results, row.group, "Std")
        line: list[Cell] = [Text(title_of(results, row.group)), Text(row.model)]
        for figure, beside in zip(figures, besides, strict=True):
            ours, paper, _ = _beside(results, row, figure)
            whole, paper_whole, _ = _beside(results, dense, figure) if dense else [NO_STD] * 3
            line += beside.cells(_ratio(ours, whole), _ratio(paper, paper_whole))
        cells.append(line)
    note = (
        f"{data_of(results, *_groups(results))} Each divided by Std of the same group and machine, so that ours and the"
        " paper's can be compared: tokens/s above 1 is faster; seconds and memory below 1 are less."
    )
    columns = [Column("data"), Column("model"), *(column for beside in besides for column in beside.columns)]
    title = "Speed and memory relative to Std"
    return table_beside(key="speed-relative", title=title, note=note, columns=columns, rows=cells, row_headings=2)


def seconds_table(results: Results) -> StudyTable | None:
    """Wall clock of the study by phase."""
    total = sum(results.seconds.values())
    rows: list[list[Cell]] = [
        [Text(phase), Number(seconds, 1), number(100 * seconds / total if total else None, 1, "nothing took time")]
        for phase, seconds in results.seconds.items()
    ]
    runs = sum(run.train_seconds for run in results.runs)
    note = (
        f"Wall clock, {total:,.0f} seconds in all, {results.tokens_to_report:,.0f} of them from prepared tokens to the"
        f" report. The training of the {len(results.runs)} runs adds up to {runs:,.0f} seconds by their"
        " own clocks, which run at once where several share the machine."
    )
    columns = [Column("phase"), Column("seconds"), Column("share (%)")]
    return table_beside(key="seconds", title="Where the time went", note=note, columns=columns, rows=rows)


def _rows(results: Results) -> list[Row]:
    return [row for group in _groups(results) for row in group_rows(results, group)]


def _groups(results: Results) -> list[str]:
    """All, where any speed was measured or should have been."""
    is_asked = results.measurements or any(name.startswith("speed of ") for name in results.failures)
    return list(results.groups) if is_asked else []


def _beside(results: Results, row: Row, figure: Figure) -> list[Cell]:
    """Ours, the paper's and the difference of one row."""
    measured = results.measurement(row.group, row.model)
    ours: Cell = Missing(why_not_measured(results, row))
    if measured is not None:
        ours = number(figure.ours(measured), figure.decimals[0], NO_MEMORY)
    return figure.beside.cells(ours, number(figure.printed(row.published), figure.decimals[1], NOT_IN_PAPER))


def _ratio(cell: Cell, whole: Cell) -> Cell:
    if isinstance(cell, Missing):
        return cell
    if isinstance(whole, Missing):
        return whole if whole == Missing(NOT_IN_PAPER) else NO_STD
    assert isinstance(cell, Number)
    assert isinstance(whole, Number)
    return Number(cell.value / whole.value, 2)


def _batches(row: Row) -> list[Cell]:
    """Of training / evaluation, ours and the paper's."""
    paper = SETTINGS.get(row.group)
    printed: Cell = Text(f"{paper['batch']} / {paper['evaluation batch']}") if paper else Missing(NOT_IN_PAPER)
    if not row.runs:
        return [Missing(row.reason or NO_SEED), printed]
    recipe = Recipe(**row.runs[0].recipe)
    return [Text(f"{recipe.batch_size} / {recipe.eval_batch_size}"), printed]


def _published(results: Results) -> list[tuple[str, str, Published]]:
    groups = _groups(results)
    return [(group, model, found) for group in groups for model, found in PUBLISHED.get(group, {}).items()]


def _machines(results: Results) -> str:
    devices = ", ".join(dict.fromkeys(found.device for found in results.measurements))
    return f"Ours: {devices}. Paper: Tesla T4, slices one after another."


def _epochs(results: Results) -> str:
    """How an epoch here differs from the paper's, where its data are others."""
    found: dict[tuple[int, str], list[str]] = {}
    for group in _groups(results):
        ours, paper = results.groups[group].get("train"), SETTINGS.get(group, {}).get("training texts")
        if ours and paper and f"{ours:,}" != paper:
            found.setdefault((ours, paper), []).append(title_of(results, group))
    return "".join(
        f" An epoch has {ours:,} texts here and {paper} in the paper ({'; '.join(titles)}): that too makes it shorter."
        for (ours, paper), titles in found.items()
    )
