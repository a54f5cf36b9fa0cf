"""The first thing a newcomer runs: a dense and a tensor Transformer of the same width on embedded data, compared."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from lformer.data import Examples, Prepared, TextData, load_data, prepare
from lformer.models import LFormerForSequenceClassification
from lformer.settings import UserError
from lformer.studies.prediction import classify
from lformer.studies.report import write_report
from lformer.train import PRESETS, Preset, RunFolder, train

# folder: title, model fields beside the preset's
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "std": ("Std (dense)", {"tube_length": 1}),
    "t4": ("T4-linear", {"tube_length": 4}),
}
# Places that no list of territories, languages, scripts or currencies has.
PLACES = {
    "Székesfehérvár": "hu",
    "Château de Versailles": "fr",
    "Jyväskylän yliopisto": "fi",
    "Nürnberger Straße": "de",
    "Plzeňský kraj": "cs",
    "İstanbul Boğazı": "tr",
}
EXAMPLES = 6  # names of the test split that are predicted beside them, each of another language


def quickstart(out: Path, console: Console | None = None) -> None:
    """Train both models into `out` and compare them; what is finished there already is not done again."""
    console = console or Console()
    started = time.perf_counter()
    preset = PRESETS["quickstart"]()
    _require_same_settings(out, preset)
    assert preset.source is not None
    data = load_data(preset.source)
    options = {name: value for name, value in asdict(preset.data).items() if name != "validation_fraction"}
    prepared = prepare(data, out / "data", **options)
    console.print(_about(data), highlight=False)
    results = {}
    with _few_threads():
        for name, (title, _) in MODELS.items():
            console.print(f"\n[bold]{title}[/]", highlight=False)
            results[name] = _train(prepared, out / name, preset, name)
    console.print()
    console.print(comparison(results))
    page = write_report([out / name for name in MODELS], out / "report.html", "lformer quickstart")
    console.print()
    console.print(_predictions(out, prepared, data))
    console.print(f"\n{time.perf_counter() - started:.0f} seconds in all. The report: {page}", highlight=False)
    console.print(f"Try your own: lformer predict {out / 't4'} NAME ...", highlight=False)


def comparison(results: dict[str, dict[str, Any]]) -> Table:
    """The models side by side."""
    table = Table(title="test split")
    table.add_column("")
    headings = ("encoder parameters", "accuracy", "macro-F1", "training seconds", "tokens/s")
    for name in headings:
        table.add_column(name, justify="right")
    for name, result in results.items():
        table.add_row(
            MODELS[name][0],
            f"{result['layer_parameters']:,}",
            f"{result['test']['accuracy']:.4f}",
            f"{result['test']['macro_f1']:.4f}",
            f"{result['train_seconds']:.1f}",
            f"{result['tokens_per_second']:,}",
        )
    return table


def example_names(data: TextData) -> list[tuple[str, str]]:
    """Names with their language, none of them in the training split."""
    known = {fields[0] for fields in data.splits["train"].texts}
    found: dict[str, str] = {}
    test: Examples = data.splits["test"]
    for (name, *_), label in zip(test.texts, test.labels or [], strict=True):
        language = data.label_names[label]
        if language not in found.values() and len(found) < EXAMPLES:
            found[name] = language
    return [(name, language) for name, language in {**found, **PLACES}.items() if name not in known]


@contextmanager
def _few_threads() -> Iterator[None]:
    """Half the cores, four at most, unless the user chose: such small matrices gain little from more, and on a busy
    machine threads that wait for each other slow a step down several times.
    """
    before = torch.get_num_threads()
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, min(4, (os.cpu_count() or 1) // 2)))
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _train(prepared: Prepared, out: Path, preset: Preset, name: str) -> dict[str, Any]:
    model = {**preset.model, **MODELS[name][1]}
    return train(
        prepared, out, model=model, recipe=preset.recipe, task="classification", resume=RunFolder(out).is_started
    )


def _require_same_settings(out: Path, preset: Preset) -> None:
    """Refuse a folder with runs of other settings, or with a report that is not ours."""
    runs = {name: RunFolder(out / name) for name in MODELS}
    if out.exists() and not out.is_dir():
        raise UserError(f"{out} is a file; choose another --out")
    if (out / "report.html").exists() and not any(run.is_started for run in runs.values()):
        raise UserError(f"{out / 'report.html'} is there, and no run of the quickstart; choose another --out")
    for name, run in runs.items():
        if not run.is_started:
            continue
        request = run.request()
        asked = {"model": {**preset.model, **MODELS[name][1]}, "recipe": asdict(preset.recipe)}
        if any(request[part] != value for part, value in asked.items()):
            raise UserError(f"{run.path} was trained with other settings; delete {out} or choose another --out")


def _about(data: TextData) -> str:
    sizes = ", ".join(f"{len(split):,} {name}" for name, split in data.splits.items())
    return f"Which of {len(data.label_names)} languages is this name? {sizes} names from the CLDR data of babel."


def _predictions(out: Path, prepared: Prepared, data: TextData) -> Table:
    names = example_names(data)
    table = Table(title="names that were not in the training split")
    table.add_column("name")
    table.add_column("language")
    columns = []
    for folder, (title, _) in MODELS.items():
        table.add_column(title)
        model = LFormerForSequenceClassification.from_pretrained(out / folder / "model").eval()
        columns.append(list(classify(model, prepared.tokenizer(), [name for name, _ in names])))
    for (name, language), *found in zip(names, *columns, strict=True):
        guesses = [f"{line['label']} {line['probability']:.2f}" for line in found]
        table.add_row(name, language, *guesses)
    return table
