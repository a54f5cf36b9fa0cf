"""Every verb on small real data: what it prints, what it writes."""

import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from .conftest import TINY, TINY_MODEL, sets

Run = Callable[..., int]
Capture = pytest.CaptureFixture[str]


def test_prepare_writes_a_cache_that_train_takes(lformer: Run, words: Path, tmp_path: Path, capsys: Capture) -> None:
    cache, out = tmp_path / "cache", tmp_path / "run"
    data_settings = [setting for setting in TINY_MODEL if setting.startswith(("vocab", "max_length"))]
    assert lformer("prepare", "--data-dir", words, "--out", cache, *sets(data_settings)) == 0
    assert json.loads((cache / "manifest.json").read_text())["splits"].keys() == {"train", "validation", "test"}
    stamp = (cache / "manifest.json").stat().st_mtime_ns
    assert lformer("prepare", "--data-dir", words, "--out", cache, *sets(data_settings)) == 0
    assert (cache / "manifest.json").stat().st_mtime_ns == stamp, "a fresh cache is left as it is"
    assert lformer("train", "--prepared", cache, "--out", out, *sets(TINY)) == 0
    assert "test accuracy" in capsys.readouterr().out
    assert not (out / "data").exists()


def test_train_writes_a_run_folder(run_folder: Path) -> None:
    names = {path.name for path in run_folder.iterdir()}
    assert {"run.json", "environment.json", "metrics.jsonl", "result.json", "model", "predictions", "data"} <= names
    request = json.loads((run_folder / "run.json").read_text())
    assert request["recipe"]["epochs"] == 1
    assert request["model"]["hidden_size"] == 16
    assert np.load(run_folder / "predictions" / "test.npy").shape == (20,)


def test_resuming_a_finished_run_gives_its_result(lformer: Run, run_folder: Path, capsys: Capture) -> None:
    before = (run_folder / "result.json").read_bytes()
    assert lformer("train", "--resume", "--out", run_folder) == 0
    assert f"{json.loads(before)['test']['accuracy']:.4f}" in capsys.readouterr().out
    assert (run_folder / "result.json").read_bytes() == before


def test_resuming_goes_on_from_the_last_checkpoint(lformer: Run, words: Path, tmp_path: Path, capsys: Capture) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    settings = [*TINY, "epochs=2", "checkpoint_steps=3"]
    for out in (whole, cut):
        assert lformer("train", "--data-dir", words, "--out", out, *sets(settings)) == 0
    (cut / "result.json").unlink()  # as if it had been stopped before its end
    capsys.readouterr()
    assert lformer("train", "--resume", "--out", cut) == 0
    assert "resuming from" in capsys.readouterr().err
    weights = [(out / "model" / "model.safetensors").read_bytes() for out in (whole, cut)]
    assert weights[0] == weights[1]


def test_evaluate_repeats_the_scores_of_the_run(lformer: Run, run_folder: Path, capsys: Capture) -> None:
    assert lformer("evaluate", run_folder) == 0
    scores = json.loads(capsys.readouterr().out)
    result = json.loads((run_folder / "result.json").read_text())["test"]
    assert scores["accuracy"] == result["accuracy"]
    assert scores["loss"] == pytest.approx(result["loss"], rel=1e-5)
    assert lformer("evaluate", run_folder, "--split", "train") == 0


def test_predict_texts(lformer: Run, run_folder: Path, capsys: Capture) -> None:
    assert lformer("predict", run_folder, "Vogel", "oiseau", "") == 0
    lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [text for _, _, text in lines] == ["Vogel", "oiseau", ""]
    assert all(label in ("de", "fr") and 0.5 <= float(share) <= 1 for label, share, _ in lines)


def test_predict_a_file_standard_input_and_json_agree(
    lformer: Run, run_folder: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "names.txt"
    file.write_text("Straße\noiseau vert\n", encoding="utf-8")
    assert lformer("predict", run_folder, "--file", file, "--json") == 0
    from_file = capsys.readouterr().out
    monkeypatch.setattr(sys, "stdin", io.StringIO(file.read_text(encoding="utf-8")))
    assert lformer("predict", run_folder, "--json") == 0
    assert capsys.readouterr().out == from_file
    lines = [json.loads(line) for line in from_file.splitlines()]
    assert [line["text"] for line in lines] == ["Straße", "oiseau vert"]
    for line in lines:
        assert sum(line["probabilities"].values()) == pytest.approx(1, abs=1e-5)
        assert line["label"] == max(line["probabilities"], key=line["probabilities"].get)


def test_predictions_are_those_of_the_run(lformer: Run, run_folder: Path, words: Path, capsys: Capture) -> None:
    texts = [line.rsplit(",", 1)[0] for line in (words / "test.csv").read_text(encoding="utf-8").splitlines()[1:]]
    assert lformer("predict", run_folder, *texts) == 0
    labels = [line.split("\t")[0] for line in capsys.readouterr().out.splitlines()]
    names = json.loads((run_folder / "model" / "config.json").read_text())["id2label"]
    assert labels == [names[str(i)] for i in np.load(run_folder / "predictions" / "test.npy")]


def test_generate_continues_a_text(lformer: Run, language_run: Path, capsys: Capture) -> None:
    arguments = ["generate", language_run, "--prompt", "the ", "--max-new-tokens", "5", "--seed", "3"]
    assert lformer(*arguments) == 0
    first = capsys.readouterr().out
    assert first.startswith("the ")
    assert lformer(*arguments) == 0
    assert capsys.readouterr().out == first, "the same seed gives the same text"
    assert lformer("generate", language_run, "--temperature", "0", "--max-new-tokens", "3") == 0


def test_the_ways_to_give_a_prompt_agree(
    lformer: Run, language_run: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ["--max-new-tokens", "5", "--top-p", "0.9", "--temperature", "0.7"]
    file = tmp_path / "prompt.txt"
    file.write_bytes(b"the c")
    found = []
    for prompt in (["the c"], ["--prompt", "the c"], ["--file", file], ["-"], ["--file", "-"]):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"the c")))
        assert lformer("generate", language_run, *prompt, *options) == 0
        found.append(capsys.readouterr().out)
    assert len(set(found)) == 1
    assert found[0].startswith("the c")


def test_on_a_terminal_the_text_comes_as_it_is_made(
    lformer: Run, language_run: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["generate", language_run, "the ", "--max-new-tokens", "6"]
    assert lformer(*arguments) == 0
    whole = capsys.readouterr().out
    pieces: list[str] = []
    monkeypatch.setattr("typer.echo", lambda text, nl=True: pieces.append(text))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert lformer(*arguments) == 0
    assert "".join(pieces) == whole
    assert len(pieces) > 4


def test_generate_translates_line_by_line(lformer: Run, translation_run: Path, tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "in.en"
    file.write_text("the dog 1\nthe dog 2\n", encoding="utf-8")
    options = ["--max-new-tokens", "4", "--num-beams", "2"]
    assert lformer("generate", translation_run, "--file", file, *options) == 0
    both = capsys.readouterr().out
    assert both.count("\n") == 2
    assert lformer("generate", translation_run, "the dog 1", *options) == 0
    assert capsys.readouterr().out == both.splitlines(keepends=True)[0]


def test_evaluate_with_bleu(lformer: Run, translation_run: Path, capsys: Capture) -> None:
    pytest.importorskip("sacrebleu")
    assert lformer("evaluate", translation_run, "--bleu", "--batch-size", "3") == 0
    scores = json.loads(capsys.readouterr().out)
    assert scores["loss"] > 0
    assert {"greedy", "beam_4"} <= scores["bleu"].keys()
    assert "tok:13a" in scores["bleu"]["greedy"]["signature"]


def test_export_writes_onnx(lformer: Run, run_folder: Path, tmp_path: Path, capsys: Capture) -> None:
    pytest.importorskip("onnxruntime")
    assert lformer("export", run_folder, "--out", tmp_path / "model.onnx") == 0
    assert "model.onnx" in capsys.readouterr().out
    assert (tmp_path / "model.onnx").stat().st_size > 1000


def test_presets_and_info(lformer: Run, run_folder: Path, capsys: Capture) -> None:
    assert lformer("presets") == 0
    out = capsys.readouterr().out
    assert all(name in out for name in ("paper-imdb", "paper-ag-news", "quickstart"))
    assert lformer("info", run_folder) == 0
    assert "T4 (dct)" in capsys.readouterr().out


def test_every_verb_has_help(lformer: Run, capsys: Capture) -> None:
    for verb in ("quickstart", "prepare", "train", "evaluate", "predict", "generate", "export", "info", "presets"):
        assert lformer(verb, "--help") == 0
        assert "Usage" in capsys.readouterr().out


def test_the_installed_command() -> None:
    command = Path(sys.executable).with_name("lformer")
    if not command.exists():
        pytest.skip("lformer is not installed as a command in this environment")
    run = subprocess.run([command, "info", "--set", "tube=2"], capture_output=True, text=True, check=False)
    assert run.returncode == 2
    assert run.stdout == ""
    assert run.stderr == "lformer: --set tube=2: there is no setting 'tube'\n" or "did you mean" in run.stderr
