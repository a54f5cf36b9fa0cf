"""A user's mistake is one line on stderr and exit code 2; nothing is written, nothing overwritten."""

import json
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lformer.cli import main
from lformer.data_request import CONFIG_TYPES, DataRequest
from lformer.settings import UserError
from lformer.train.presets import DATA_TYPES
from lformer.train.recipe import RECIPE_TYPES

from .conftest import TINY, call, sets, write_words

Refused = Callable[..., str]


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("epoch=3", "did you mean epochs?"),
        ("learning_rat=1", "did you mean learning_rate?"),
        ("max_lenght=9", "did you mean max_length?"),
        ("tube_lenth=2", "did you mean tube_length?"),
        ("epochs=many", "is not of the type int"),
        ("epochs", "KEY=VALUE"),
        ("epochs=0", "at least 1"),
        ("schedule=zigzag", "'onecycle'"),
        ("hidden_size=-4", "hidden_size"),
        ("num_attention_heads=6", "num_attention_heads=6"),
        ("validation_fraction=2", "validation_fraction=2"),
        ("tokenizer_kind=words", "words"),
        ("max_length=0", "max_length=0"),
        ("vocab_size=3", "vocab_size=3"),
    ],
)
def test_train_settings(refused: Refused, words: Path, tmp_path: Path, setting: str, message: str) -> None:
    assert message in refused("train", "--data-dir", words, "--out", tmp_path / "run", *sets([*TINY, setting]))


def test_a_preset_that_does_not_exist(refused: Refused, words: Path, tmp_path: Path) -> None:
    asked = ("train", "--data-dir", words, "--out", tmp_path / "run", "--preset")
    assert "did you mean lm-shakespeare?" in refused(*asked, "lm-shakespere")
    assert "there are default, " in refused(*asked, "zzz")


@pytest.mark.parametrize("verb", ["train", "prepare"])
def test_data_that_are_not_there(refused: Refused, tmp_path: Path, verb: str) -> None:
    out = tmp_path / "out"
    assert "no data" in refused(verb, "--out", out)
    assert "nowhere" in refused(verb, "--data-dir", tmp_path / "nowhere", "--out", out)
    assert "did you mean imdb?" in refused(verb, "--source", "imbd", "--out", out)
    assert "no preset 'fast'" in refused(verb, "--preset", "fast", "--out", out)
    assert "cldr" in refused(verb, "--source", "cldr", "--data-dir", tmp_path, "--out", out)


def test_a_column_that_is_not_there(refused: Refused, words: Path, tmp_path: Path) -> None:
    assert "body" in refused("train", "--data-dir", words, "--text", "body", "--out", tmp_path / "run")
    assert "kind" in refused("prepare", "--data-dir", words, "--label", "kind", "--out", tmp_path / "cache")


def test_a_task_that_does_not_exist_or_fit(refused: Refused, words: Path, run_folder: Path, tmp_path: Path) -> None:
    assert "'sorting'" in refused("train", "--data-dir", words, "--task", "sorting", "--out", tmp_path / "run")
    cache = run_folder / "data"
    message = refused("train", "--prepared", cache, "--task", "translation", "--out", tmp_path / "run")
    assert "classification" in message


def test_nothing_is_overwritten(refused: Refused, words: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("years of work")
    assert "not empty" in refused("train", "--data-dir", words, "--out", mine, *sets(TINY))
    assert "mine" in refused("prepare", "--data-dir", words, "--out", mine)
    (mine / "report.html").write_text("mine too")
    assert "report.html" in refused("quickstart", "--out", mine)
    assert "is a file" in refused("quickstart", "--out", mine / "thesis.txt")


def test_a_second_run_in_the_same_folder(refused: Refused, words: Path, run_folder: Path) -> None:
    before = (run_folder / "result.json").read_bytes()
    assert "--resume" in refused("train", "--data-dir", words, "--out", run_folder, *sets(TINY))
    assert (run_folder / "result.json").read_bytes() == before


def test_resume_without_a_run(refused: Refused, tmp_path: Path) -> None:
    assert "run" in refused("train", "--resume", "--out", tmp_path / "run")


def test_a_stale_cache(refused: Refused, words: Path, run_folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    write_words(other / "train.csv", 2)
    arguments = ["--prepared", run_folder / "data", "--data-dir", other, "--out", tmp_path / "run", *sets(TINY)]
    assert "stale" in refused("train", *arguments)
    longer = ["--prepared", run_folder / "data", "--out", tmp_path / "run", *sets(TINY), "--set", "max_length=77"]
    assert re.search(r"--set cannot change the tokens in .*data: max_length was \d+, now 77", refused("train", *longer))
    assert "manifest" in refused("train", "--prepared", words, "--out", tmp_path / "run", *sets(TINY))


@pytest.mark.parametrize("verb", ["evaluate", "predict", "generate", "export", "info"])
def test_a_folder_that_is_no_run(refused: Refused, tmp_path: Path, verb: str) -> None:
    texts = ["text"] if verb == "predict" else []
    assert "nowhere" in refused(verb, tmp_path / "nowhere", *texts)
    (tmp_path / "config.json").write_text("{")
    assert str(tmp_path) in refused(verb, tmp_path, *texts)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert", "architectures": ["BertModel"]}))
    refused(verb, tmp_path, *texts)


def test_the_wrong_kind_of_model(refused: Refused, run_folder: Path, language_run: Path) -> None:
    assert "predict needs a classifier" in refused("predict", language_run, "text")
    assert "generate needs" in refused("generate", run_folder)


def test_evaluate_an_unknown_split(refused: Refused, run_folder: Path) -> None:
    assert "train, validation, test" in refused("evaluate", run_folder, "--split", "tset")


def test_evaluate_on_tokens_of_another_tokenizer(
    refused: Refused, lformer: Callable[..., int], words: Path, run_folder: Path, tmp_path: Path
) -> None:
    other = ["vocab_size=310", "max_length=16"]
    assert lformer("prepare", "--data-dir", words, "--out", tmp_path / "other", *sets(other)) == 0
    assert "another tokenizer" in refused("evaluate", run_folder, "--prepared", tmp_path / "other")


def test_predict_without_text(refused: Refused, run_folder: Path, tmp_path: Path) -> None:
    assert "not both" in refused("predict", run_folder, "text", "--file", tmp_path / "names.txt")
    assert "cannot read" in refused("predict", run_folder, "--file", tmp_path / "names.txt")
    (tmp_path / "names.txt").write_bytes(b"")
    assert "no text" in refused("predict", run_folder, "--file", tmp_path / "names.txt")
    (tmp_path / "names.txt").write_bytes(b"fa\xe7ade\n")
    assert "not UTF-8" in refused("predict", run_folder, "--file", tmp_path / "names.txt")


def test_a_prompt_that_is_too_long(refused: Refused, language_run: Path) -> None:
    assert "tokens" in refused("generate", language_run, "--prompt", "the cat " * 10)
    assert "give one prompt" in refused("generate", language_run, "the", "--prompt", "cat")
    assert "cannot read" in refused("generate", language_run, "--file", "nowhere.txt")
    assert "top_p=2.0" in refused("generate", language_run, "--top-p", "2")
    assert "leave out temperature" in refused("generate", language_run, "--num-beams", "2", "--temperature", "1")
    assert "BLEU is for translation" in refused("evaluate", language_run, "--bleu", "--split", "train")


def test_a_damaged_model(refused: Refused, run_folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "model"
    copy.mkdir()
    for path in (run_folder / "model").iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    (copy / "model.safetensors").write_bytes(b"\0" * 40)
    assert "cannot be loaded" in refused("predict", copy, "text")


def test_a_study_that_cannot_be_run(refused: Refused, tmp_path: Path) -> None:
    """Nothing is begun, so that the folder is free for the right command."""
    out = ["--scale", "smoke", "--out", tmp_path / "out"]
    assert "no study 'papers'; there are paper, controls, language" in refused("reproduce", "papers", *out)
    assert "no scale 'tiny'" in refused("reproduce", "paper", "--scale", "tiny")
    assert "no run of the study matches --only 'Std'" in refused("reproduce", "paper", *out, "--only", "Std")
    assert "has no folder imdb" in refused("reproduce", "paper", *out, "--data-dir", tmp_path)
    assert "enwik8 is not on the hub" in refused("reproduce", "language", "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    assert "holds no study" in refused("reproduce", "paper", "--scale", "smoke", "--out", tmp_path / "mine")
    assert "is a file" in refused("reproduce", "paper", "--scale", "smoke", "--out", tmp_path / "mine" / "thesis.txt")
    (tmp_path / "mine" / "study.json").write_text('{"study": "controls", "scale": "full"}')
    assert "holds the study controls" in refused("reproduce", "paper", "--scale", "smoke", "--out", tmp_path / "mine")


def test_debug_shows_the_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["lformer", "--debug", "info", "--set", "hidden_sze=3"])
    with pytest.raises(UserError, match="hidden_size"):
        main()


def test_an_unknown_verb_or_option(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["trian"], ["train", "--epochs", "3"], ["train"]):
        assert call(monkeypatch, *arguments) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert "Traceback" not in captured.err


KEYS = st.sampled_from(sorted({**CONFIG_TYPES, **RECIPE_TYPES, **DATA_TYPES}))
VALUES = st.one_of(
    st.integers(-3, 10**20).map(str),
    st.floats().map(str),
    st.sampled_from(["true", "None", "null", "nan", "-inf", "1e400", "[]", '{"a": 1}', "../../x", "/etc/passwd", ""]),
    st.text(max_size=8),
)


@given(chosen=st.lists(st.tuples(st.one_of(KEYS, st.text(max_size=6)), VALUES), max_size=3))
@settings(
    deadline=None, max_examples=150, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_setting_is_taken_or_explained(tmp_path: Path, chosen: list[tuple[str, str]]) -> None:
    request = DataRequest(None, tmp_path, None, None, None, "label", [f"{key}={value}" for key, value in chosen])
    with suppress(UserError):
        request.resolved()
    assert list(tmp_path.iterdir()) == []


# Fields that decide how long a run takes or how large a model is stay as they are.
QUICK = sorted(
    {*RECIPE_TYPES, *DATA_TYPES, "transform", "positional", "tube_length", "hidden_act", "norm_placement"}
    - {"epochs", "accumulate", "compile", "max_length", "vocab_size", "sequence_length"}
)


@given(key=st.sampled_from(QUICK), value=VALUES)
@settings(deadline=None, max_examples=40, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_training_with_any_setting_ends_in_a_result_or_one_line(
    words: Path, tmp_path_factory: pytest.TempPathFactory, key: str, value: str
) -> None:
    folder = tmp_path_factory.mktemp("fuzz")
    arguments = ["train", "--data-dir", words, "--out", folder / "run", *sets([*TINY, "max_steps=1"])]
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.chdir(folder)
        code = call(monkeypatch, *map(str, arguments), "--set", f"{key}={value}")
    assert code in (0, 2, 3)
    assert {path.name for path in folder.iterdir()} <= {"run"}
