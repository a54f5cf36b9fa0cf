"""Small data, small runs, and the command line called as a user would."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lformer.cli import main

LANGUAGES = {"de": ["Haus", "Straße", "Vogel", "grün", "schön"], "fr": ["maison", "rue", "oiseau", "vert", "beau"]}
TINY_MODEL = ["hidden_size=16", "num_hidden_layers=1", "num_attention_heads=4", "vocab_size=300", "max_length=16"]
TINY = [*TINY_MODEL, "epochs=1", "batch_size=8", "seed=1"]


def sets(settings: list[str]) -> list[str]:
    return [word for setting in settings for word in ("--set", setting)]


def write_words(path: Path, copies: int) -> Path:
    rows = [f"{word} {i},{name}" for i in range(copies) for name, words in LANGUAGES.items() for word in words]
    path.write_text("\n".join(["text,label", *rows]) + "\n", encoding="utf-8")
    return path


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["lformer", *arguments])
    monkeypatch.setenv("COLUMNS", "120")
    with pytest.raises(SystemExit) as exit_:
        main()
    return int(exit_.value.code or 0)


@pytest.fixture
def lformer(monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Runs the command with these arguments; returns its exit code."""
    return lambda *arguments: call(monkeypatch, *map(str, arguments))


@pytest.fixture
def refused(
    lformer: Callable[..., int], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., str]:
    """Runs the command, which must fail with one line and write nothing; returns the line."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")

    def check(*arguments: object) -> str:
        before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
        capsys.readouterr()
        assert lformer(*arguments) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err.count("\n") == 1, captured.err
        assert captured.err.startswith("lformer: ")
        assert "Traceback" not in captured.err
        after = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
        assert after == before
        return captured.err

    return check


@pytest.fixture(scope="session")
def words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with train.csv, validation.csv and test.csv."""
    folder = tmp_path_factory.mktemp("words")
    for split, copies in (("train", 6), ("validation", 2), ("test", 2)):
        write_words(folder / f"{split}.csv", copies)
    return folder


@pytest.fixture(scope="session")
def run_folder(words: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished classifier."""
    out = tmp_path_factory.mktemp("runs") / "words"
    with pytest.MonkeyPatch.context() as monkeypatch:
        assert call(monkeypatch, "train", "--data-dir", str(words), "--out", str(out), *sets(TINY)) == 0
    return out


@pytest.fixture(scope="session")
def language_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished causal language model."""
    folder = tmp_path_factory.mktemp("text")
    (folder / "train.txt").write_text("the cat sat on the mat. " * 60, encoding="utf-8")
    out = tmp_path_factory.mktemp("runs") / "text"
    settings = [*TINY, "sequence_length=16", "tokenizer_kind=byte"]
    with pytest.MonkeyPatch.context() as monkeypatch:
        arguments = ["--data-dir", str(folder), "--task", "causal-lm", "--out", str(out), *sets(settings)]
        assert call(monkeypatch, "train", *arguments) == 0
    return out


@pytest.fixture(scope="session")
def translation_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished encoder-decoder."""
    folder = tmp_path_factory.mktemp("pairs")
    for split, count in (("train", 24), ("test", 5)):
        (folder / f"{split}.en").write_text("".join(f"the dog {i % 7}\n" for i in range(count)), encoding="utf-8")
        (folder / f"{split}.de").write_text("".join(f"der Hund {i % 7}\n" for i in range(count)), encoding="utf-8")
    out = tmp_path_factory.mktemp("runs") / "pairs"
    options = ["--task", "translation", "--text", "en", "--text", "de", "--out", str(out)]
    with pytest.MonkeyPatch.context() as monkeypatch:
        settings = sets([*TINY, "lowercase=false"])
        assert call(monkeypatch, "train", "--data-dir", str(folder), *options, *settings) == 0
    return out
