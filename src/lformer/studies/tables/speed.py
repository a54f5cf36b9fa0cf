"""Speed and memory, as measured and relative to Std, and where the time of the study went."""

from lformer.studies.published import PUBLISHED, Published
from lformer.studies.results import Measurement, Results
from lformer.studies.rows import NOT_IN_PAPER, data_of, group_rows, title_of
from lformer.studies.tables.cells import Cell, Column, Missing, Number, StudyTable, Text, number

NOT_MEASURED = "not measured"
NO_MEMORY = "no GPU, no peak of its memory"
Figures = dict[str, float | None]
# heading: decimals of ours, of the paper's
UNITS = {"tokens/s (K)": (1, 0), "epoch (s)": (1, 0), "inference (s)": (2, 1), "peak memory (GB)": (2, 2)}


def speed_table(results: Results) -> StudyTable | None:
    """What was measured, beside what the paper measured on another machine."""
    device = ", ".join(dict.fromkeys(found.device for found in results.measurements)) or "this machine"
    note = (
        "Different hardware: compare the models of one column, not the columns. "
        f"Ours: {device}. Paper: Tesla T4, slices one after another. Tokens are places of batches padded to the"
        " longest text that the data allow, as the paper counts them; inference is one pass over the test split; "
        "a GB is 10^9 bytes."
    )
    return _speed_table(results, "speed", "Speed and memory", note, list(UNITS), is_relative=False)


def relative_speed_table(results: Results) -> StudyTable | None:
    """The same divided by Std of the group, which can be compared across machines."""
    note = (
        "Each divided by Std of the same group and machine, so that ours and the paper's can be compared:"
        " tokens/s above 1 is faster; seconds and memory below 1 are less."
    )
    headings = [f"{name.split(' (')[0]} / Std" for name in UNITS]
    return _speed_table(results, "speed-relative", "Speed and memory relative to Std", note, headings, is_relative=True)


def seconds_table(results: Results) -> StudyTable | None:
    """Wall clock of the study by phase."""
    if not results.seconds:
        return None
    total = sum(results.seconds.values())
    rows: list[list[Cell]] = [
        [Text(phase), Number(seconds, 1), number(100 * seconds / total if total else None, 1, "nothing took time")]
        for phase, seconds in results.seconds.items()
    ]
    return StudyTable(
        key="seconds",
        title="Where the time went",
        note=f"Wall clock, {total:,.0f} seconds in all.",
        columns=[Column("phase"), Column("seconds"), Column("share (%)")],
        rows=rows,
    )


def _speed_table(
    results: Results, key: str, title: str, note: str, headings: list[str], *, is_relative: bool
) -> StudyTable | None:
    groups = [group for group in results.groups if any(found.group == group for found in results.measurements)]
    rows: list[list[Cell]] = []
    for group in groups:
        dense = _measured(results.measurement(group, "Std"))
        paper_dense = _published(PUBLISHED.get(group, {}).get("Std"))
        measured = [found.model for found in results.measurements if found.group == group]
        for model in dict.fromkeys([*(row.model for row in group_rows(results, group)), *measured]):
            ours = _measured(results.measurement(group, model))
            paper = _published(PUBLISHED.get(group, {}).get(model))
            if not ours and not any(paper.values()):
                continue
            row: list[Cell] = [Text(title_of(results, group)), Text(model)]
            for name, (decimals, paper_decimals) in UNITS.items():
                reason = NO_MEMORY if ours and "memory" in name else NOT_MEASURED
                if is_relative:
                    row.append(_ratio(ours.get(name), dense.get(name), reason, "Std was not measured"))
                    row.append(_ratio(paper.get(name), paper_dense.get(name), NOT_IN_PAPER, NOT_IN_PAPER))
                else:
                    row.append(number(ours.get(name), decimals, reason))
                    row.append(number(paper.get(name), paper_decimals, NOT_IN_PAPER))
            rows.append(row)
    if not rows:
        return None
    columns = [Column("data"), Column("model")]
    for heading in headings:
        columns += [Column(heading), Column(f"paper: {heading}", is_paper=True)]
    note = f"{data_of(results, *groups)} {note}"
    return StudyTable(key=key, title=title, note=note, columns=columns, rows=rows, row_headings=2)


def _measured(found: Measurement | None) -> Figures:
    if found is None:
        return {}
    memory = None if found.peak_memory_bytes is None else found.peak_memory_bytes / 1e9
    values = (found.tokens_per_second / 1e3, found.epoch_seconds, found.inference_seconds, memory)
    return dict(zip(UNITS, values, strict=True))


def _published(found: Published | None) -> Figures:
    found = found or Published()
    values = (found.tokens_per_second, found.epoch_seconds, found.inference_seconds, found.memory_gb)
    return dict(zip(UNITS, values, strict=True))


def _ratio(value: float | None, whole: float | None, reason: str, no_whole: str) -> Cell:
    if value is None:
        return Missing(reason)
    return Number(value / whole, 2) if whole else Missing(no_whole)
