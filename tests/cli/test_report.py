"""`lformer report` on a study and on runs, and `lformer reproduce` in parts: the data first, then as long as wanted."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from lformer.data import Prepared
from lformer.studies.results import MissingRun, Results

Run = Callable[..., int]
Refused = Callable[..., str]
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """The folder of a study in which one run is missing."""
    groups = {"g": {"title": "G", "data": "Mine.", "labels": ["a", "b"]}}
    folder = tmp_path / "study"
    folder.mkdir()
    missing = [MissingRun(group="g", model="Std", label="seed-1", role="result", reason="stopped")]
    Results(study="s", scale="full", groups=groups, runs=[], missing=missing).write(folder / "results.json")
    return folder


def test_a_study(lformer: Run, study: Path, tmp_path: Path, capsys: Capture) -> None:
    assert lformer("report", study) == 0
    written = capsys.readouterr().out.splitlines()
    assert written[-1] == f"wrote {study / 'report' / 'report.html'}"
    assert f"wrote {study / 'report' / 'tables' / 'missing.tex'}" in written
    out = tmp_path / "new" / "place"
    assert lformer("report", study / "results.json", "--out", out, "--title", "Mine & <yours>") == 0
    assert "<h1>Mine &amp; &lt;yours&gt;</h1>" in (out / "report.html").read_text(encoding="utf-8")
    assert (out / "tables" / "missing.md").is_file()


def test_a_study_as_markdown(lformer: Run, study: Path, tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "docs" / "results.md"
    assert lformer("report", study, "--markdown", file) == 0
    assert capsys.readouterr().out == f"wrote {file}\n"
    assert "| G | Std | seed-1 | stopped |" in file.read_text(encoding="utf-8")
    assert lformer("report", study, study, "--markdown", file) == 0
    assert file.read_text(encoding="utf-8").count("# The study s\n") == 2
    assert not (study / "report").exists()


def test_runs(lformer: Run, run_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.chdir(tmp_path)
    assert lformer("report", run_folder) == 0
    assert capsys.readouterr().out == f"wrote {Path('report', 'report.html')}\n"
    assert lformer("report", run_folder, run_folder, "--out", tmp_path / "other", "--title", "Two") == 0
    page = (tmp_path / "other" / "report.html").read_text(encoding="utf-8")
    accuracy = json.loads((run_folder / "result.json").read_text())["test"]["accuracy"]
    assert page.count(f"{accuracy:.4f}") >= 2


def test_mistakes(refused: Refused, study: Path, run_folder: Path, tmp_path: Path) -> None:
    assert "neither a study (results.json) nor a run (run.json)" in refused("report", tmp_path)
    assert "neither a study" in refused("report", tmp_path / "nowhere")
    assert "neither a study" in refused("report", run_folder, tmp_path)
    assert "give studies alone, or runs alone" in refused("report", study, run_folder)
    assert "--out is for one study" in refused("report", study, study, "--out", tmp_path / "both")
    assert "neither a study" in refused("report", study, tmp_path / "nowhere", "--markdown", tmp_path / "x.md")
    assert "--markdown needs a study" in refused("report", run_folder, "--markdown", tmp_path / "x.md")
    (tmp_path / "file").write_text("mine")
    assert "is a file" in refused("report", study, "--out", tmp_path / "file")
    assert "cannot be written" in refused("report", study, "--out", tmp_path / "file" / "below")
    assert "cannot be written" in refused("report", study, "--markdown", tmp_path / "file" / "x.md")


@pytest.mark.parametrize("text", ["{", "[1]", '{"format": "x"}', '{"format": "lformer-study", "version": 7}', "\xff"])
def test_damaged_results(refused: Refused, tmp_path: Path, text: str) -> None:
    (tmp_path / "results.json").write_bytes(text.encode("latin-1"))
    assert "does not hold the results of a study" in refused("report", tmp_path)


def test_results_with_fields_of_the_wrong_kind(refused: Refused, study: Path) -> None:
    found = json.loads((study / "results.json").read_text())
    (study / "results.json").write_text(json.dumps({**found, "runs": [{"group": "g"}]}))
    assert "does not hold the results of a study" in refused("report", study)


def test_reproduce_prepares_alone_and_stops_in_time(lformer: Run, tmp_path: Path, capsys: Capture) -> None:
    pytest.importorskip("babel")
    out, cache = tmp_path / "out", tmp_path / "cache"
    command = ["reproduce", "controls", "--scale", "smoke", "--out", out, "--cache", cache]
    assert lformer(*command, "--prepare-only") == 0
    assert not out.exists()
    prepared = sorted(cache.iterdir())
    assert [path.name for path in prepared] == ["ag_news", "ag_news-trials", "imdb", "imdb-trials"]
    assert all("train" in Prepared.open(path).splits for path in prepared)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 4
    assert any(line.startswith(f"{cache / 'imdb'}: a stand-in: ") and line.endswith(" MB") for line in lines)
    made = {path: path.stat().st_mtime_ns for path in cache.rglob("*.npy")}
    assert lformer(*command, "--minutes", 0) == 0
    runs = len(Results.read(out).missing)
    assert f"No time for {runs} parts: the same command goes on" in capsys.readouterr().err
    assert (out / "report" / "report.html").is_file()
    assert {path: path.stat().st_mtime_ns for path in cache.rglob("*.npy")} == made
    assert lformer(*command, "--minutes", -1) == 2
