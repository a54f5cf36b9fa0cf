"""The quickstart on a small scale: the data are the real ones, the models tiny and hardly trained."""

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("babel", reason="no babel: pip install -e '.[demo]'")

from rich.console import Console

from lformer.data import load_data
from lformer.settings import UserError
from lformer.studies import quickstart
from lformer.studies.quickstart import PLACES, example_names
from lformer.train import PRESETS, Preset

WHOLE = PRESETS["quickstart"]


def tiny(**changes: Any) -> Preset:
    preset = WHOLE()
    return replace(
        preset,
        model={**preset.model, "hidden_size": 16, "num_hidden_layers": 1},
        recipe=replace(preset.recipe, **{"epochs": 1, "max_steps": 4, "eval_batch_size": 2048, **changes}),
    )


def run(out: Path) -> str:
    console = Console(file=io.StringIO(), width=120)
    quickstart(out, console)
    return console.file.getvalue()


def test_it_trains_compares_reports_and_predicts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(PRESETS, "quickstart", tiny)
    out = tmp_path / "runs" / "quickstart"
    printed = run(out)
    results = {name: json.loads((out / name / "result.json").read_text()) for name in ("std", "t4")}
    assert results["t4"]["layer_parameters"] < results["std"]["layer_parameters"] / 3
    for result in results.values():
        assert f"{result['test']['accuracy']:.4f}" in printed
        assert f"{result['layer_parameters']:,}" in printed
    assert all(name in printed for name in PLACES)
    assert sorted(path.name for path in out.iterdir()) == ["data", "report.html", "std", "t4"]
    assert (out / "report.html").read_text(encoding="utf-8").count("<svg") == 4

    stamps = {name: (out / name / "result.json").stat().st_mtime_ns for name in results}
    assert all(name in run(out) for name in PLACES)
    assert stamps == {name: (out / name / "result.json").stat().st_mtime_ns for name in results}, "trained again"

    (out / "t4" / "result.json").unlink()  # as if it had been interrupted
    run(out)
    again = json.loads((out / "t4" / "result.json").read_text())
    assert again["test"]["accuracy"] == results["t4"]["test"]["accuracy"]

    monkeypatch.setitem(PRESETS, "quickstart", lambda: tiny(learning_rate=1.0))
    with pytest.raises(UserError, match="other settings"):
        run(out)


def test_example_names_are_new_to_the_models() -> None:
    data = load_data("cldr")
    names = example_names(data)
    assert set(PLACES) <= {name for name, _ in names}
    assert not {name for name, _ in names} & {fields[0] for fields in data.splits["train"].texts}
    assert len({language for _, language in names[:6]}) == 6
