"""How many times faster than dense, drawn from the JSON of a bench alone."""

import json
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lformer.settings import UserError
from lformer.studies.bench.compare import FORMAT
from lformer.studies.bench.limits import MEASURES

STYLE: Any = {
    "svg.fonttype": "none",
    "font.size": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.alpha": 0.25,
    "legend.frameon": False,
}
LABELS = {"forward": "forward", "training": "training step"}
SHADES = {"forward": "#4c78a8", "training": "#f58518"}


def read_result(path: Path) -> dict[str, Any]:
    """A result that `lformer bench layer` or `bench model` wrote."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise UserError(f"{path} is not JSON: {error}") from None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise UserError(f"{path} is not a result of lformer bench layer or lformer bench model")
    return found


def write_plots(path: Path) -> list[Path]:
    """A PNG and an SVG beside the JSON; returns what was written."""
    result = read_result(path)
    with mpl.rc_context({**STYLE, "svg.hashsalt": path.name}):
        figure = _figure(result)
        written = [path.with_suffix(".png"), path.with_suffix(".svg")]
        for target in written:
            metadata = {"Date": None} if target.suffix == ".svg" else None  # the same result is the same file
            figure.savefig(target, dpi=150, metadata=metadata)
    return written


def _figure(result: dict[str, Any]) -> Figure:
    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    axes: Axes = figure.add_subplot()
    (_bars if result["sweep"] is None else _lines)(axes, result)
    axes.axhline(1, color="black", linewidth=1, linestyle="--")
    axes.set_ylim(bottom=0)
    axes.set_ylabel("times as fast as dense")
    shape, settings = result["shapes"][0]["shape"], result["settings"]
    layers = f" of {shape['layers']} layers" if result["kind"] == "model" else ""
    device = result["environment"]["device"]
    axes.set_title(f"{result['kind']}{layers}, {settings['dtype']}, {device}", fontsize=9, parse_math=False)
    if axes.get_legend_handles_labels()[0]:
        axes.legend()
    return figure


def _lines(axes: Axes, result: dict[str, Any]) -> None:
    shapes = result["shapes"]
    several = len({p for found in shapes for p in found["headlines"]}) > 1 and result["sweep"] == "d"
    for measure in MEASURES:
        points: dict[str, list[tuple[int, float]]] = {}
        for found in shapes:
            for p, best in found["headlines"].items():
                if best[measure] is not None and best[measure]["ratio"] is not None:
                    width = found["shape"]["hidden_size"]
                    x, line = (width, p) if result["sweep"] == "d" else (int(p), str(width))
                    points.setdefault(line, []).append((x, best[measure]["ratio"]))
        for index, (line, values) in enumerate(points.items()):
            label = f"{LABELS[measure]}, p={line}" if several else LABELS[measure]
            style = ("-", "--", ":", "-.")[index % 4]
            axes.plot(*zip(*sorted(values), strict=True), style, color=SHADES[measure], marker="o", label=label)
    shape = shapes[0]["shape"]
    place = f"B={shape['batch']}, T={shape['length']}"
    if result["sweep"] == "d":
        ticks = [found["shape"]["hidden_size"] for found in shapes]
        axes.set_xlabel(f"width d ({place}, p={', '.join(shapes[0]['headlines'])})")
    else:
        ticks = [int(p) for p in shapes[0]["headlines"]]
        axes.set_xlabel(f"tube length p ({place}, d={shape['hidden_size']})")
    axes.set_xscale("log", base=2)
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.minorticks_off()


def _bars(axes: Axes, result: dict[str, Any]) -> None:
    shapes = result["shapes"]
    tubes = list(shapes[0]["headlines"])
    bars = [(p, measure) for p in tubes for measure in MEASURES]
    width = 0.8 / len(bars)
    for index, (p, measure) in enumerate(bars):
        best = [found["headlines"][p][measure] for found in shapes]
        heights = [0.0 if found is None or found["ratio"] is None else found["ratio"] for found in best]
        places = [place - 0.4 + (index + 0.5) * width for place in range(len(shapes))]
        alpha = 1 - 0.6 * tubes.index(p) / len(tubes)
        label = f"p={p}, {LABELS[measure]}"
        drawn = axes.bar(places, heights, width, color=SHADES[measure], alpha=alpha, label=label)
        axes.bar_label(drawn, [f"{height:.2f}" if height else "" for height in heights], fontsize=7)
    axes.set_xticks(range(len(shapes)), [found["shape"]["name"] for found in shapes])
    axes.set_xlabel("B x T x d")
