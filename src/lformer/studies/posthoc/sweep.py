"""Accuracy against parameters of a dense classifier that is compressed after its training.

Layers, parts and ranks are chosen on the validation split alone; the test split is read once, after the choice, for the
chosen points.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

from accelerate import Accelerator
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from torch import Tensor

from lformer.algebra.transforms import TransformLike
from lformer.data import Prepared, TokenSplit
from lformer.models import LFormerForSequenceClassification
from lformer.settings import UserError
from lformer.studies.posthoc.compression import ATTENTION, Stack, part_names, require_dense, stack_sites
from lformer.train import Recipe, RunFolder, evaluate, make_task
from lformer.train.runner import make_accelerator
from lformer.train.tasks import Task

RANKS = (0.01, 0.05, 0.1, 0.15, 0.2, 0.25, 0.35, 0.5, 0.75)
"""Fractions of the full rank that are tried for every matrix and every stack."""
ENERGIES = (0.5, 0.7, 0.8, 0.9, 0.95, 0.99)
"""Fractions of the energy that are tried for every stack."""
BUDGETS = (1.0, 0.9, 0.75, 0.5, 0.25)
"""Shares of the parameters of the layers for which the best model is chosen. 1.0: whatever rank reduction does best."""
SHARES = tuple(i / 20 for i in range(19, 1, -1))
"""Where combinations are measured on the way from the whole model to the smallest."""

RANK_REDUCTION = "rank reduction"
STACKED = "stacked L-SVD"


@dataclass(frozen=True, eq=False)
class Cut:
    """One stack, cut in one way."""

    stack: Stack
    kept: Tensor
    ranks: tuple[int, ...]
    saved: int
    level: tuple[str, float]
    """("rank", fraction of the full one) or ("energy", fraction)."""

    @property
    def key(self) -> tuple[str, tuple[int, ...]]:
        return self.stack.name, self.ranks


@dataclass(eq=False)
class Point:
    """A compressed model and its scores."""

    method: str
    cuts: tuple[Cut, ...]
    layer_parameters: int
    validation: dict[str, float]
    search: str | None = None
    """"single": one cut alone; "uniform": all stacks at one level; "greedy": combined by the damage each cut does."""
    way: str | None = None
    transform: str | None = None
    budgets: list[float] = field(default_factory=list)
    test: dict[str, float] | None = None

    @property
    def merit(self) -> tuple[float, float, int]:
        return self.validation["accuracy"], -self.validation["loss"], -self.layer_parameters

    def as_dict(self, whole: int) -> dict[str, Any]:
        test = self.test or {}
        return {
            "method": self.method,
            "way": self.way,
            "transform": self.transform,
            "search": self.search,
            "parts": [cut.stack.name for cut in self.cuts],
            "rank": [cut.ranks[0] if len(cut.ranks) == 1 else list(cut.ranks) for cut in self.cuts],
            "layer_parameters": self.layer_parameters,
            "share": self.layer_parameters / whole,
            "validation_accuracy": self.validation["accuracy"],
            "validation_loss": self.validation["loss"],
            "budgets": self.budgets,
            "test_accuracy": test.get("accuracy"),
            "macro_f1": test.get("macro_f1"),
            "test_loss": test.get("loss"),
        }


@dataclass(frozen=True, eq=False)
class Way:
    """The stacks that a model's layers are cut into."""

    method: str
    name: str | None
    transform: str | None
    cuts: list[list[Cut]]
    """Those of every stack."""


@dataclass(eq=False)
class Scorer:
    """Scores of a model with some of its stacks cut; nothing is measured twice."""

    model: LFormerForSequenceClassification
    task: Task
    accelerator: Accelerator
    validation: TokenSplit
    whole: int
    """Parameters of all layers, biases and norms included."""
    known: dict[Any, dict[str, float]] = field(default_factory=dict)

    def measure(self, method: str, cuts: Sequence[Cut], **about: Any) -> Point:
        key = frozenset(cut.key for cut in cuts)
        if key not in self.known:
            self.known[key] = self.scores(cuts, self.validation)
        parameters = self.whole - sum(cut.saved for cut in cuts)
        return Point(method, tuple(cuts), parameters, self.known[key], **about)

    def scores(self, cuts: Sequence[Cut], split: TokenSplit) -> dict[str, float]:
        for cut in cuts:
            cut.stack.put_(self.model, cut.kept)
        found = evaluate(self.model, self.task, split, self.accelerator).scores
        for cut in cuts:
            cut.stack.put_(self.model, None)
        return found


def posthoc_sweep(
    run: Path,
    prepared: Prepared,
    *,
    transform: TransformLike = "dct",
    ranks: Sequence[float] = RANKS,
    energies: Sequence[float] = ENERGIES,
    budgets: Sequence[float] = BUDGETS,
    quiet: bool = False,
) -> list[dict[str, Any]]:
    """Compress the dense classifier of a finished run in many ways; returns points of accuracy against parameters.

    The first point is the model as trained. "rank reduction" cuts single matrices. "stacked L-SVD" cuts the stack of
    each part over all layers, or ("way") the attention of each layer as a stack of its own. Each cut is measured alone,
    all stacks at the same level together, and combinations that grow by the cut with the least damage per parameter
    saved. For each method and budget the point with the best validation accuracy (then the least loss) has the budget
    in "budgets" and is scored on the test split; of all others "test_accuracy" and "macro_f1" are None. A budget that
    nothing is small enough for has no point.

    "parts" and "rank" say what was cut: a matrix "layers.0.inner" to a rank, a stack "layers.*.inner" or
    "layers.0.attention" to the ranks of its slices. "layer_parameters" counts factors where they are fewer than the
    matrix, and all that is not cut; "share" is that over what the layers had.

    >>> posthoc_sweep(Path("runs/std"), Prepared.open(Path("cache/imdb")))[0]["method"]  # doctest: +SKIP
    'none'
    """
    scorer = _scorer(run, prepared)
    points = [scorer.measure("none", ())]
    console = Console(stderr=True)
    hidden = quiet or not scorer.accelerator.is_main_process or not console.is_terminal
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=hidden) as progress:
        for way in _ways(scorer.model, transform, ranks, energies):
            points += _search(way, scorer, points[0], budgets, progress)
        chosen = [points[0], *_frontier(points[1:], budgets, scorer.whole)]
        test = prepared.split("test")
        for point in progress.track(chosen, description="test split"):
            point.test = scorer.scores(point.cuts, test)
    return [point.as_dict(scorer.whole) for point in points]


def _scorer(run: Path, prepared: Prepared) -> Scorer:
    folder = RunFolder(run)
    request = folder.request()
    folder.result()  # refuses a run that is not finished
    if request["data"]["fingerprint"] != prepared.manifest["fingerprint"]:
        raise UserError(
            f"{run} was trained on other data than {prepared.path}: a split there may hold its training texts"
        )
    recipe = Recipe(**request["recipe"])
    task = make_task(request["task"], prepared, recipe)
    if task.model_class is not LFormerForSequenceClassification:
        raise UserError(f"{run} holds a {task.model_class.__name__}; post-hoc compression is for a classifier")
    for split in ("validation", "test"):
        if split not in prepared.splits:
            hint = "; prepare it with --set validation_fraction=0.1 and train again" if split == "validation" else ""
            raise UserError(
                f"{prepared.path} has no {split} split: ranks are chosen on texts that the model has not seen, and "
                f"scored on others{hint}"
            )
    model = LFormerForSequenceClassification.from_pretrained(folder.model).eval()
    require_dense(model)
    accelerator = make_accelerator(recipe, run)
    whole = sum(p.numel() for name, p in model.named_parameters() if "layers." in name)
    moved: Any = model.to(accelerator.device)
    return Scorer(moved, task, accelerator, prepared.split("validation"), whole)


def _ways(
    model: LFormerForSequenceClassification, transform: TransformLike, ranks: Sequence[float], energies: Sequence[float]
) -> list[Way]:
    parts = part_names(model)
    layers = range(len(model.model.layers))
    matrices = [Stack.of(model, ((layer, part),), "identity") for layer in layers for part in parts]
    by_part = {part: Stack.of(model, stack_sites(model, part), transform) for part in parts}
    by_layer = [Stack.of(model, stack_sites(model, ATTENTION, layer), transform) for layer in layers]
    feed_forward = [by_part["inner"], by_part["outer"]]  # of two shapes: there is nothing in a layer to stack them with

    def cuts(stacks: list[Stack], energies: Sequence[float]) -> list[list[Cut]]:
        return [_cuts(stack, ranks, energies) for stack in stacks]

    name = by_part["inner"].transform.name
    return [
        Way(RANK_REDUCTION, None, None, cuts(matrices, ())),
        Way(STACKED, "parts over layers", name, cuts(list(by_part.values()), energies)),
        Way(STACKED, "attention of a layer", name, cuts([*by_layer, *feed_forward], energies)),
    ]


def _cuts(stack: Stack, ranks: Sequence[float], energies: Sequence[float]) -> list[Cut]:
    """The ways to cut a stack; one that leaves nothing out is none."""
    full = len(stack.values)
    kept = {("rank", level): stack.keep_tubes(min(full, max(1, round(level * full)))) for level in ranks}
    kept |= {("energy", level): stack.keep_energy(level) for level in energies}
    return [
        Cut(stack, mask, tuple(stack.ranks(mask)), stack.saved(mask), level)
        for level, mask in kept.items()
        if not bool(mask.all())
    ]


def _search(way: Way, scorer: Scorer, start: Point, budgets: Sequence[float], progress: Progress) -> list[Point]:
    """Every cut alone, every level for all stacks, and the combinations that these suggest."""
    name = " ".join(filter(None, (way.method, way.name and f"({way.name})")))
    levels = list(dict.fromkeys(cut.level for cuts in way.cuts for cut in cuts))
    total = sum(map(len, way.cuts)) + len(levels)
    bar = progress.add_task(name, total=total)

    def measure(search: str, cuts: Sequence[Cut]) -> Point:
        point = scorer.measure(way.method, cuts, search=search, way=way.name, transform=way.transform)
        progress.advance(bar)
        return point

    singles = [[measure("single", [cut]) for cut in cuts] for cuts in way.cuts]
    uniform = []
    for level in levels:
        uniform.append(measure("uniform", [cut for cuts in way.cuts for cut in cuts if cut.level == level]))
    combined: dict[frozenset[Any], tuple[Cut, ...]] = {}
    for score, sign in (("loss", 1), ("accuracy", -1)):
        damage = [[sign * (p.validation[score] - start.validation[score]) for p in points] for points in singles]
        for cuts in _combinations(way.cuts, damage, scorer.whole, budgets):
            combined[frozenset(cut.key for cut in cuts)] = cuts
    progress.update(bar, total=total + len(combined))
    return [*chain.from_iterable(singles), *uniform, *(measure("greedy", cuts) for cuts in combined.values())]


def _combinations(
    cuts: list[list[Cut]], damage: list[list[float]], whole: int, budgets: Sequence[float]
) -> list[tuple[Cut, ...]]:
    """Combinations for a falling number of parameters, as if the damages of cuts of different stacks added up.

    Each stack goes down the lower convex hull of damage against parameters saved, so its steps cost more and more per
    parameter; the steps of all stacks are taken in the order of that cost.
    """
    steps: list[tuple[float, int, Cut]] = []
    for index, (own, harm) in enumerate(zip(cuts, damage, strict=True)):
        hull: list[tuple[int, float, Cut | None]] = [(0, 0.0, None)]
        for cut, y in sorted(zip(own, harm, strict=True), key=lambda pair: (pair[0].saved, pair[1])):
            x = cut.saved
            if x == hull[-1][0]:
                continue  # no smaller than the one before, and no better
            while len(hull) > 1 and _slope(hull[-2], (x, y)) <= _slope(hull[-2], hull[-1]):
                hull.pop()
            hull.append((x, y, cut))
        for before, after in pairwise(hull):
            assert after[2] is not None
            steps.append((_slope(before, after), index, after[2]))
    steps.sort(key=lambda step: step[:2])  # stable: along a hull the slope rises
    goals = sorted({*SHARES, *(budget for budget in budgets if budget < 1)}, reverse=True)
    found: list[tuple[Cut, ...]] = []
    state: dict[int, Cut] = {}
    for _, index, cut in steps:
        state[index] = cut
        left = whole - sum(taken.saved for taken in state.values())
        if goals and left <= goals[0] * whole:
            found.append(tuple(state[i] for i in sorted(state)))
            goals = [goal for goal in goals if left > goal * whole]
    return found


def _slope(a: tuple[Any, ...], b: tuple[Any, ...]) -> float:
    return (b[1] - a[1]) / (b[0] - a[0])


def _frontier(points: list[Point], budgets: Sequence[float], whole: int) -> list[Point]:
    """For each method and budget the best point by its validation scores, with the budget noted in it."""
    chosen: dict[int, Point] = {}
    for method in dict.fromkeys(point.method for point in points):
        for budget in budgets:
            small = [p for p in points if p.method == method and p.layer_parameters <= budget * whole]
            if small:
                best = max(small, key=lambda point: point.merit)
                best.budgets.append(budget)
                chosen[id(best)] = best
    return list(chosen.values())
