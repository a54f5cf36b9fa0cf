"""How figures look, and how they become files or parts of a page."""

import io
import re
import textwrap
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, LogLocator, NullLocator

from lformer.studies.tables.cells import slug

INK = "#010203"  # a colour that nothing else has: inside a page it becomes the page's
# Okabe and Ito's colours, without black and yellow: told apart by colour-blind readers, legible on white and on black.
BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY = "#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9"
COLOURS = [BLUE, VERMILION, GREEN, ORANGE, PURPLE, SKY]
MARKERS = ["o", "s", "^", "D", "v", "P", "X"]
STYLE: Any = {
    **dict.fromkeys(["text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"], INK),
    "text.parse_math": False,  # a dollar sign in the name of a run is a dollar sign
    "axes.prop_cycle": f"cycler('color', {COLOURS})",
    "svg.fonttype": "none",
    "font.size": 9.0,
    "axes.titlesize": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    "figure.facecolor": "white",
}
DOTS_PER_INCH = 200


@dataclass(frozen=True, kw_only=True)
class StudyFigure:
    """A figure with its words."""

    key: str
    """The name of its files and of its place in a page."""
    title: str
    caption: str
    figure: Figure
    beside: str
    """The key of the table that it stands with in a page."""

    @cached_property
    def svg(self) -> str:
        """The figure as text without a background. It is laid out once, here: that takes longer than all else."""
        text = _svg(self.figure, self.title)
        self.figure.set_layout_engine("none")
        return text


def group_figure(
    kind: str, group: str, title: str, caption: str, figure: Figure, table: str = "accuracy"
) -> StudyFigure:
    """A figure that stands with a table of a group."""
    key, beside = slug(f"{kind}-{group}"), slug(f"{table}-{group}")
    return StudyFigure(key=key, title=title, caption=caption, figure=figure, beside=beside)


@contextmanager
def style() -> Iterator[None]:
    """Everything that draws or saves a figure does it within."""
    with mpl.rc_context(STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*[Gg]lyph.*")  # the reader's browser has more letters
        yield


def new_axes(title: str, about: str = "", size: tuple[float, float] = (5.6, 3.6)) -> tuple[Figure, Axes]:
    """One pair of axes below a title and a line about the data."""
    figure = Figure(figsize=size, layout="constrained")
    put_title(figure, title, about)
    axes: Axes = figure.add_subplot()
    return figure, axes


def put_title(figure: Figure, title: str, about: str = "") -> None:
    """The title, and under it what the data are."""
    width = int(14.5 * figure.get_figwidth())
    lines = [*textwrap.wrap(title, width), *textwrap.wrap(about, width)]
    figure.suptitle("\n".join(lines), fontsize=9)


def numbered(numbers: int) -> Iterator[tuple[str, str]]:
    """So many pairs of a colour and a marker, no two alike among the first 42."""
    for i in range(numbers):
        yield COLOURS[i % len(COLOURS)], MARKERS[i % len(MARKERS)]


def count_axis(axes: Axes) -> None:
    """Counts from left to right, in powers, with ticks such as 200K and 1M."""
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.xaxis.set_minor_locator(NullLocator())
    short_counts(axes)


def short_counts(axes: Axes) -> None:
    """Ticks such as 200K and 1M from left to right."""
    axes.xaxis.set_major_formatter(lambda value, _: _short(value))


def power_axis(axes: Axes, values: set[int]) -> None:
    """These values from left to right, equal ratios at equal distances."""
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(sorted(values)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")


def inline_svg(figure: Figure, title: str) -> str:
    """The figure to stand inside a page."""
    return inline(_svg(figure, title), title)


def inline(svg: str, title: str) -> str:
    """To stand inside a page: text and lines take the page's colour, the background is its own."""
    used = set(re.findall(r'(?:url\(|href=")#([^")]+)', svg))
    # Names of parts that nothing refers to would occur twice in a page.
    svg = re.sub(r' id="([^"]+)"', lambda found: found[0] if found[1] in used else "", svg)
    label = f'<svg role="img" aria-label="{escape(title)}" '
    svg = svg.replace(INK, "currentColor").replace(BLUE, f"var(--blue, {BLUE})")  # lighter on a dark page
    return svg.replace("<svg ", label, 1)


def svg_file(svg: str) -> bytes:
    """A picture on white."""
    end = svg.index(">") + 1
    return f'{svg[:end]}<rect width="100%" height="100%" fill="white"/>{svg[end:]}'.encode()


def png_file(figure: Figure) -> bytes:
    """The same as dots."""
    buffer = io.BytesIO()
    with style():
        figure.savefig(buffer, format="png", dpi=DOTS_PER_INCH, facecolor="white", metadata={"Software": None})
    return buffer.getvalue()


def _short(count: float) -> str:
    for size, letter in ((1e6, "M"), (1e3, "K")):
        if count >= size:
            return f"{count / size:g}{letter}"
    return f"{count:g}"


def _svg(figure: Figure, title: str) -> str:
    buffer = io.StringIO()
    metadata = dict.fromkeys(["Date", "Creator", "Format", "Type"])
    with style(), mpl.rc_context({"svg.hashsalt": title}):  # the same figure is the same text; two share no names
        figure.savefig(buffer, format="svg", transparent=True, metadata=metadata)
    svg = buffer.getvalue()
    return re.sub(r"<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
