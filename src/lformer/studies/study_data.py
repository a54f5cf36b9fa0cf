"""The prepared data of a study: made once from text, or taken as they are where the text is not at hand."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from lformer.data import Examples, Prepared, TextData, load_data, prepare
from lformer.data.language import character_start, decode, encode
from lformer.settings import UserError
from lformer.studies.study import DataNeed

FULL_SIZE = {"ag_news": 120_000, "imdb": 25_000}
NAMES = {"ag_news": "AG News", "imdb": "IMDB", "cldr": "CLDR names"}


def prepare_data(need: DataNeed, folder: Path, data_dir: Path | None) -> Prepared:
    """The prepared folder, made or renewed from `data_dir`; without it, a folder that is there is used if it is right.

    If there is none, the text is that of the hub, or of the stand-in of a miniature.
    """
    check_source(need, folder, data_dir)
    if _is_ready(folder, data_dir):
        return Prepared.open(folder)
    return prepare(_load(need, data_dir), folder, **_settings(need))


def check_source(need: DataNeed, folder: Path, data_dir: Path | None) -> None:
    """Refuse data that cannot be prepared, as far as that is seen without reading text; nothing is written."""
    if _is_ready(folder, data_dir):
        if reasons := unfit(need, Prepared.open(folder)):
            raise UserError(
                f"{folder} does not hold what the study needs: {'; '.join(reasons)}; "
                "choose another --cache, or give --data-dir to prepare it again"
            )
    elif data_dir is not None and not (data_dir / need.source).is_dir():
        raise UserError(f"{data_dir} has no folder {need.source}; it must hold the files of that data set")
    elif data_dir is None and need.task == "language-modeling" and need.stand_in is None:
        raise UserError(f"{need.source} is not on the hub: give --data-dir, a folder with a folder {need.source}")


def unfit(need: DataNeed, prepared: Prepared) -> list[str]:
    """Why prepared data whose text is not at hand are not what is needed; [] if they are."""
    reasons = prepared.stale_reasons(**_settings(need))
    if prepared.task != need.task:
        reasons.append(f"its task is {prepared.task}, not {need.task}")
    if prepared.name not in (need.source, need.stand_in):
        reasons.append(f"it holds {prepared.name}, not {need.source}")
    found = set(prepared.manifest["fingerprint"].split(", ")[1:]) - {"text"}  # what _load notes behind the hash
    splits = set(need.splits or prepared.splits)
    if found != set(_cut(need, list(splits))):
        reasons.append(f"it is another part of the data: {', '.join(sorted(found)) or 'all of them'}")
    is_held_out = need.settings.validation_fraction > 0
    if need.task == "classification" and ("validation" in prepared.splits) != is_held_out:
        reasons.append(f"texts {'must be' if is_held_out else 'are'} held out of its training split for validation")
    return reasons


def describe(need: DataNeed, prepared: Prepared) -> str:
    """One sentence on what the data are, for every table and figure that is made of them."""
    name = NAMES.get(prepared.name, prepared.name)
    if prepared.task == "language-modeling":
        parts = ", ".join(f"{len(prepared.split(split).tokens):,} {split}" for split in prepared.splits)
        return f"{name}: {parts} bytes" if prepared.name == need.source else f"a stand-in, {name}: {parts} bytes"
    train, test = (len(prepared.split(split)) for split in ("train", "test"))
    if prepared.name != need.source:
        return f"a stand-in: {train:,} training and {test:,} test texts of {name} in place of {NAMES[need.source]}"
    if need.rows is not None:
        return f"a miniature: {train:,} training and {test:,} test texts of {name}"
    if part := subset(need, prepared):
        full = FULL_SIZE[need.source]
        return f"{name}{part}: {train:,} of the {full:,} training texts; the whole test set of {test:,} texts"
    return f"{name}, {train:,} training and {test:,} test texts"


def subset(need: DataNeed, prepared: Prepared) -> str:
    """What a title says of training texts that are not all there are; empty if they are, or if it is a miniature."""
    train = len(prepared.split("train"))
    if need.rows is not None or prepared.name != need.source or train >= FULL_SIZE.get(need.source, 0):
        return ""
    return f", {f'{train // 1000}k' if train >= 1000 else train} subset"


def _is_ready(folder: Path, data_dir: Path | None) -> bool:
    return data_dir is None and (folder / "manifest.json").is_file()


def _settings(need: DataNeed) -> dict[str, Any]:
    return {name: value for name, value in asdict(need.settings).items() if name != "validation_fraction"}


def _cut(need: DataNeed, splits: list[str]) -> list[str]:
    """Which part of the data is used, as their fingerprint has it."""
    if need.task == "classification":
        return [] if need.rows is None else [f"{need.rows} rows"]
    return splits if need.validation_bytes is None else [*splits, f"{need.validation_bytes} bytes of validation"]


def _load(need: DataNeed, data_dir: Path | None) -> TextData:
    fraction = need.settings.validation_fraction
    if need.task == "language-modeling":
        return _load_text(need, data_dir)
    if data_dir is None and need.stand_in is not None:
        data = load_data(need.stand_in)
        if fraction == 0:
            data = replace(data, splits={name: part for name, part in data.splits.items() if name != "validation"})
    else:
        data = load_data(need.source, _folder(need, data_dir), validation_fraction=fraction)
    if need.rows is None:
        return data
    splits = {
        name: _first(part, need.rows if name == "train" else need.rows // 2) for name, part in data.splits.items()
    }
    return replace(data, splits=splits, fingerprint=", ".join([data.fingerprint, *_cut(need, list(splits))]))


def _load_text(need: DataNeed, data_dir: Path | None) -> TextData:
    """Text for a language model; its stand-in is made of the texts of a classification, one a line."""
    if data_dir is not None:
        data = replace(load_data(None, _folder(need, data_dir), task=need.task), name=need.source)
    else:
        assert need.stand_in is not None
        found = load_data(need.stand_in)
        splits = {
            name: Examples([("\n".join(text for (text, *_) in part.texts),)]) for name, part in found.splits.items()
        }
        data = replace(found, task=need.task, splits=splits, label_names=[], fingerprint=f"{found.fingerprint}, text")
    kept = {name: part for name, part in data.splits.items() if need.splits is None or name in need.splits}
    if need.validation_bytes is not None:
        content = encode("".join(text for (text, *_) in kept["validation"].texts))
        start = decode(content[: character_start(content, need.validation_bytes)])
        kept["validation"] = Examples([(start,)])
    return replace(data, splits=kept, fingerprint=", ".join([data.fingerprint, *_cut(need, list(kept))]))


def _folder(need: DataNeed, data_dir: Path | None) -> Path | None:
    return None if data_dir is None else data_dir / need.source


def _first(examples: Examples, count: int) -> Examples:
    """The first examples of every class, as many of each."""
    classes: dict[int, list[int]] = {}
    for index, label in enumerate(examples.labels or []):
        classes.setdefault(label, []).append(index)
    share = max(1, count // max(1, len(classes)))
    return examples.take(sorted(index for members in classes.values() for index in members[:share]))
