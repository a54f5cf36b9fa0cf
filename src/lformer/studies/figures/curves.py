"""How a group's models learned, by epoch."""

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from lformer.studies.figures.style import StudyFigure, group_figure, numbered, put_title
from lformer.studies.results import Results, RunRecord
from lformer.studies.rows import data_of, title_of

SEED = 42  # the one that the paper shows
# what of a curve is shown: factor, label
PANELS = {
    "train_loss": (1.0, "training loss"),
    "loss": (1.0, "loss"),
    "accuracy": (100.0, "accuracy (%)"),
    "macro_f1": (100.0, "macro-F1 (%)"),
}


def curves_figure(results: Results, group: str) -> StudyFigure | None:
    """Training loss, and loss, accuracy and macro-F1 of one split, of one seed, one line a row."""
    runs = [run for rows in results.rows(group).values() for run in rows if run.curve]
    seed = SEED if any(run.seed == SEED for run in runs) or not runs else runs[0].seed
    runs = [run for run in runs if run.seed == seed]
    panels = [name for name in PANELS if any(_points(run, name) for run in runs)]
    if not panels:
        return None
    title = f"Training curves: {title_of(results, group)}, seed {seed}"
    legend_lines = -(-len(runs) // 4)
    columns = min(len(panels), 2)
    lines = -(-len(panels) // columns)
    figure = Figure(figsize=(3.6 * columns + 0.4, 2.9 * lines + 0.6 + 0.2 * legend_lines), layout="constrained")
    put_title(figure, title, data_of(results, group))
    splits = sorted({run.curve_split for run in runs if run.curve_split})
    for i, name in enumerate(panels):
        axes = figure.add_subplot(lines, columns, i + 1)
        factor, label = PANELS[name]
        for run, (colour, marker) in zip(runs, numbered(len(runs)), strict=True):
            points = [(epoch, factor * value) for epoch, value in _points(run, name)]
            if points:
                axes.plot(*zip(*points, strict=True), color=colour, marker=marker, markersize=3, label=run.model)
        axes.set_xlabel("epoch")
        on_split = "" if name == "train_loss" else f", {' or '.join(splits)} split"
        axes.set_ylabel(label + on_split)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4)
    without = [model for model, rows in results.rows(group).items() if not any(run.curve for run in rows)]
    caption = "After every epoch." + (f" No curves were kept of {', '.join(without)}." if without else "")
    return group_figure("curves", group, title, caption, figure)


def _points(run: RunRecord, name: str) -> list[tuple[float, float]]:
    return [(point["epoch"], point[name]) for point in run.curve if point.get(name) is not None]
