"""Nothing half-written, nothing of the user's overwritten, damage reported."""

import errno
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lformer.data.preparation as module
from lformer.data import Prepared, prepare
from lformer.settings import UserError

from .cases import small_data, snapshot, write


def fail(*arguments: object, **options: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("step", ["train_tokenizer", "write_array", "_save_tokenizer", "write_json", "_replace"])
@pytest.mark.parametrize("before", [False, True])
def test_a_failure_leaves_what_was_there(
    step: str, before: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    if before:
        prepare(small_data(), out, vocab_size=300)
    old = snapshot(tmp_path)
    monkeypatch.setattr(module, step, fail)
    with pytest.raises(UserError if step != "train_tokenizer" else OSError, match="No space left"):
        prepare(small_data(), out, vocab_size=280)
    assert snapshot(tmp_path) == old
    assert list(tmp_path.iterdir()) == ([out] if before else [])


def test_a_failing_rename_puts_the_old_folder_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare(small_data(), tmp_path / "out", vocab_size=300)
    old = snapshot(tmp_path)
    rename = os.rename
    monkeypatch.setattr(os, "rename", lambda a, b: fail() if str(a).endswith(".partial") else rename(a, b))
    with pytest.raises(UserError, match="No space left on device; nothing was changed"):
        prepare(small_data(), tmp_path / "out", vocab_size=280)
    assert snapshot(tmp_path) == old


def test_a_killed_process_leaves_no_half_folder(tmp_path: Path) -> None:
    code = (
        "import os, sys, pathlib, lformer.data.preparation as m\n"
        "from tests.data.cases import small_data\n"
        "m.write_json = lambda *a: os.kill(os.getpid(), 9)\n"
        "m.prepare(small_data(), pathlib.Path(sys.argv[1]), vocab_size=300)\n"
    )
    root = Path(__file__).parents[2]
    run = subprocess.run([sys.executable, "-c", code, str(tmp_path / "out")], cwd=root, check=False)
    assert run.returncode == -9
    assert not (tmp_path / "out").exists()
    assert prepare(small_data(), tmp_path / "out", vocab_size=300).splits == ["train", "test"]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"thesis.tex": "years of work"}, r"will not be overwritten \(.*has no manifest\.json"),
        ({"manifest.json": "{}"}, r"will not be overwritten \(.*not one of lformer's"),
        ({"manifest.json": "[1"}, r"will not be overwritten \(.*manifest\.json cannot be read"),
    ],
)
def test_another_folder_is_never_overwritten(files: dict[str, str], message: str, tmp_path: Path) -> None:
    write(tmp_path / "out", files)
    with pytest.raises(UserError, match=message):
        prepare(small_data(), tmp_path / "out")
    assert snapshot(tmp_path / "out") == {name: content.encode() for name, content in files.items()}


def test_a_file_is_never_overwritten(tmp_path: Path) -> None:
    write(tmp_path, {"out": "mine"})
    with pytest.raises(UserError, match="will not be overwritten"):
        prepare(small_data(), tmp_path / "out")
    with pytest.raises(UserError, match="cannot be made"):
        prepare(small_data(), tmp_path / "out" / "below")
    assert snapshot(tmp_path) == {"out": b"mine"}


@pytest.mark.parametrize("name", ["notes.md", "tokenizer/mine.json"])
def test_what_the_user_put_into_a_prepared_folder_stays(name: str, tmp_path: Path) -> None:
    prepare(small_data(), tmp_path / "out", vocab_size=300)
    write(tmp_path / "out", {name: "mine"})
    with pytest.raises(UserError, match=f"has {Path(name).name}, which lformer did not write"):
        prepare(small_data(), tmp_path / "out", vocab_size=280)
    assert (tmp_path / "out" / name).read_text() == "mine"


def test_an_empty_folder_is_filled_and_a_damaged_one_made_anew(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    prepare(small_data(), out)
    (out / "train.tokens.npy").write_bytes(b"")
    prepare(small_data(), out)
    Prepared.open(out).verify()


def edit(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], object]:
    def apply(out: Path) -> None:
        manifest = json.loads((out / "manifest.json").read_text())
        change(manifest)
        (out / "manifest.json").write_text(json.dumps(manifest))

    return apply


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing array": (lambda out: (out / "train.labels.npy").unlink(), r"damaged \(train\.labels\.npy is missing\)"),
    "short array": (
        lambda out: os.truncate(out / "train.tokens.npy", 140),
        r"train\.tokens\.npy has 140 bytes, not \d+",
    ),
    "missing tokenizer": (
        lambda out: (out / "tokenizer/tokenizer.json").unlink(),
        r"tokenizer/tokenizer\.json is missing",
    ),
    "no manifest": (lambda out: (out / "manifest.json").unlink(), r"is not a prepared folder: it has no manifest"),
    "half a manifest": (
        lambda out: os.truncate(out / "manifest.json", 100),
        r"damaged \(manifest\.json cannot be read",
    ),
    "bytes": (lambda out: (out / "manifest.json").write_bytes(b"\xff"), r"damaged \(manifest\.json cannot be read"),
    "key": (edit(lambda m: m.pop("settings")), r"damaged \(manifest\.json: KeyError 'settings'"),
    "split": (edit(lambda m: m["splits"].update({"../x": {}})), r"damaged \(manifest\.json: ValueError splits"),
    "file": (edit(lambda m: m["files"].update({"../x": {}})), r"damaged \(manifest\.json: ValueError files"),
    "list": (edit(lambda m: m.update(files=[])), r"damaged \(manifest\.json: \w+ "),
    "version": (edit(lambda m: m.update(version=99)), r"is of format 99, this lformer reads 1"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_seen_on_opening(name: str, tmp_path: Path) -> None:
    damage, message = DAMAGE[name]
    prepare(small_data(), tmp_path / "out", vocab_size=300)
    damage(tmp_path / "out")
    with pytest.raises(UserError, match=message) as error:
        Prepared.open(tmp_path / "out")
    assert "\n" not in str(error.value)


def test_changed_contents_are_seen_on_demand(tmp_path: Path) -> None:
    prepared = prepare(small_data(), tmp_path / "out", vocab_size=300)
    file = tmp_path / "out" / "train.tokens.npy"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    Prepared.open(tmp_path / "out")
    with pytest.raises(UserError, match=r"the contents of train\.tokens\.npy have changed"):
        prepared.verify()


@pytest.mark.parametrize(
    ("array", "values"),
    [
        ("labels", np.full(12, 2)),
        ("offsets", np.arange(13)),
        ("offsets", np.arange(13)[::-1].copy()),
        ("labels", np.zeros(12, dtype="S8")),
    ],
)
def test_arrays_that_do_not_fit_are_seen_on_reading(array: str, values: np.ndarray, tmp_path: Path) -> None:
    prepared = prepare(small_data(), tmp_path / "out", vocab_size=300)
    np.save(tmp_path / "out" / f"train.{array}.npy", values)
    with pytest.raises(UserError, match=r"damaged \(the train split: "):
        prepared.split("train")


def test_no_pickle_is_read(tmp_path: Path) -> None:
    prepared = prepare(small_data(), tmp_path / "out", vocab_size=300)
    np.save(tmp_path / "out" / "train.labels.npy", np.array([{}] * 12, dtype=object), allow_pickle=True)
    with pytest.raises(UserError, match=r"damaged \(train\.labels\.npy is not an array"):
        prepared.split("train")
    (tmp_path / "out" / "train.labels.npy").write_bytes(pickle.dumps([0] * 12))
    with pytest.raises(UserError, match=r"damaged \(train\.labels\.npy is not an array"):
        prepared.split("train")


def test_unknown_split_and_folder(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no validation split, only train, test"):
        prepare(small_data(), tmp_path / "out", vocab_size=300).split("validation")
    with pytest.raises(UserError, match="there is no such folder; make it with lformer prepare"):
        Prepared.open(tmp_path / "nowhere")


def test_it_trains_without_what_loaded_it(tmp_path: Path) -> None:
    prepare(small_data(), tmp_path / "out", vocab_size=300)
    code = (
        "import sys\n"
        "for name in ('datasets', 'babel', 'pyarrow'): sys.modules[name] = None\n"
        "from pathlib import Path\n"
        "from lformer.data import Prepared\n"
        "prepared = Prepared.open(Path(sys.argv[1]))\n"
        "print(len(prepared.split('train')), prepared.tokenizer().pad_token_id)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "out")], capture_output=True, text=True, check=True
    )
    assert run.stdout == "12 0\n"
