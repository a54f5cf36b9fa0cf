"""The prepared data of a study: made once from text, or taken as they are where the text is not at hand."""

from dataclasses import asdict, replace
from pathlib import Path

from lformer.data import Examples, Prepared, TextData, load_data, prepare
from lformer.data.language import character_start, decode, encode
from lformer.settings import UserError
from lformer.studies.study import DataNeed

FULL_SIZE = {"ag_news": 120_000, "imdb": 25_000}
NAMES = {"ag_news": "AG News", "imdb": "IMDB", "cldr": "CLDR names"}


def prepare_data(need: DataNeed, folder: Path, data_dir: Path | None) -> Prepared:
    """The prepared folder, made or renewed from `data_dir` or the hub; without either a folder that is there is used.

    A miniature without text takes its stand-in.
    """
    if data_dir is None and (folder / "manifest.json").is_file():
        return Prepared.open(folder)
    settings = {name: value for name, value in asdict(need.settings).items() if name != "validation_fraction"}
    return prepare(_load(need, data_dir), folder, **settings)


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
    held = len(prepared.split("validation")) if "validation" in prepared.splits else 0
    whole, full = train + held, FULL_SIZE.get(need.source, 0)
    if whole < full:
        return (
            f"{name}, {whole // 1000}k subset: {whole:,} of the {full:,} training texts; "
            f"the whole test set of {test:,} texts"
        )
    return f"{name}, {whole:,} training and {test:,} test texts"


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
    return replace(data, splits=splits, fingerprint=f"{data.fingerprint}, {need.rows} rows")


def _load_text(need: DataNeed, data_dir: Path | None) -> TextData:
    """Text for a language model; its stand-in is made of the texts of a classification, one a line."""
    if data_dir is not None:
        data = replace(load_data(None, _folder(need, data_dir), task=need.task), name=need.source)
    elif need.stand_in is not None:
        found = load_data(need.stand_in)
        splits = {
            name: Examples([("\n".join(text for (text, *_) in part.texts),)]) for name, part in found.splits.items()
        }
        data = replace(found, task=need.task, splits=splits, label_names=[], fingerprint=f"{found.fingerprint}, text")
    else:
        raise UserError(f"{need.source} is not on the hub: give --data-dir, a folder with a folder {need.source}")
    kept = {name: part for name, part in data.splits.items() if need.splits is None or name in need.splits}
    fingerprint = f"{data.fingerprint}, {', '.join(kept)}"
    if need.validation_bytes is not None:
        content = encode("".join(text for (text, *_) in kept["validation"].texts))
        start = decode(content[: character_start(content, need.validation_bytes)])
        kept["validation"] = Examples([(start,)])
        fingerprint += f", {need.validation_bytes} bytes of validation"
    return replace(data, splits=kept, fingerprint=fingerprint)


def _folder(need: DataNeed, data_dir: Path | None) -> Path | None:
    if data_dir is None:
        return None
    if not (data_dir / need.source).is_dir():
        raise UserError(f"{data_dir} has no folder {need.source}; it must hold the files of that data set")
    return data_dir / need.source


def _first(examples: Examples, count: int) -> Examples:
    """The first examples of every class, as many of each."""
    classes: dict[int, list[int]] = {}
    for index, label in enumerate(examples.labels or []):
        classes.setdefault(label, []).append(index)
    share = max(1, count // max(1, len(classes)))
    return examples.take(sorted(index for members in classes.values() for index in members[:share]))
