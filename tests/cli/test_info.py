"""`lformer info` and `--set`, as a user types them."""

import json
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lformer import LFormerConfig
from lformer.cli import main
from lformer.data_request import CONFIG_TYPES
from lformer.settings import UserError, apply_settings


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["lformer", *arguments])
    monkeypatch.setenv("COLUMNS", "120")
    with pytest.raises(SystemExit) as exit_:
        main()
    return int(exit_.value.code or 0)


def test_info_prints_the_paper_counts(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, "info", "--set", "hidden_size=768", "--set", "num_attention_heads=8") == 0
    out = capsys.readouterr().out
    assert "7,117,824" in out
    assert "28,351,488" in out


def test_info_reads_a_saved_model(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    LFormerConfig(vocab_size=11, hidden_size=32, tube_length=2, num_hidden_layers=1).save_pretrained(tmp_path)
    assert run(monkeypatch, "info", str(tmp_path), "--length", "7") == 0
    out = capsys.readouterr().out
    assert "T2 (dct)" in out
    assert "7 tokens" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "hidden_sze=3"], "did you mean hidden_size?"),
        (["--set", "hidden_size=wide"], "is not of the type int"),
        (["--set", "hidden_size"], "KEY=VALUE"),
        (["--set", "num_attention_heads=6"], "use 4 or 8"),
        (["--set", "transform=wavelet"], "learned-orthogonal"),
        (["no-such-folder"], "no config.json"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert run(monkeypatch, "info", *arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err
    assert captured.err.count("\n") == 1
    assert "Traceback" not in captured.err


def test_a_config_of_another_model_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    assert run(monkeypatch, "info", str(tmp_path)) == 2
    assert "'bert'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("hidden_size=64", 64),
        ("interleave=True", True),
        ("interleave=false", False),
        ("hidden_dropout_prob=0", 0.0),
        ("hidden_dropout_prob=1e-3", 0.001),
        ("eos_token_id=None", None),
        ("transform=dft", "dft"),
    ],
)
def test_values_get_the_type_of_their_field(setting: str, value: object) -> None:
    changed = apply_settings({}, [setting], CONFIG_TYPES)
    assert changed == {setting.split("=")[0]: value}
    assert type(next(iter(changed.values()))) is type(value)


@given(key=st.text(max_size=12), value=st.text(max_size=12))
@settings(deadline=None, max_examples=200, derandomize=True)
def test_any_text_is_a_value_or_a_user_error(key: str, value: str) -> None:
    for setting in (f"{key}={value}", f"hidden_size={value}", key):
        try:
            changed = apply_settings({}, [setting], CONFIG_TYPES)
        except UserError:
            continue
        assert set(changed) <= set(CONFIG_TYPES)
