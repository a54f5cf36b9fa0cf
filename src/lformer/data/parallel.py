"""Parallel text for translation: two columns of a table, or two text files whose lines belong together."""

from pathlib import Path

from lformer.data.columns import text_fields
from lformer.data.examples import Examples
from lformer.data.files import TABLES, SourceFiles
from lformer.data.tables import read_table
from lformer.settings import UserError

EXPECTED = "train.csv, .tsv, .jsonl or .parquet with two columns, or line-aligned files such as train.en and train.de"


def load_translation(files: SourceFiles, languages: list[str] | None) -> tuple[dict[str, Examples], list[str]]:
    """The splits, (source, target) an example, and the notes. The languages are column names or file endings."""
    if languages is not None and (len(languages) != 2 or languages[0] == languages[1]):
        raise UserError(f"translation needs two different text columns, source and target, not {languages}")
    tables = files.by_split(TABLES)
    notes: list[str] = []
    if "train" in tables:
        if languages is None:
            languages = _only_two_columns(files, tables["train"][0])
            notes.append(f"source {languages[0]!r}, target {languages[1]!r}: the order of the columns")
        pairs = languages
        return {split: _from_tables(files, paths, pairs) for split, paths in tables.items()}, notes
    if languages is None:
        raise UserError(f"{files.location}: say which text columns are source and target, as in --text en --text de")
    sides = [files.by_split((f".{language}".lower(),)) for language in languages]
    if not all(sides):
        raise files.nothing_found(EXPECTED)
    if sides[0].keys() != sides[1].keys():
        split = sorted(sides[0].keys() ^ sides[1].keys())[0]
        raise UserError(f"{files.root}: the {split} split is there in one language only")
    return {split: _from_lines(files, sides[0][split][0], sides[1][split][0]) for split in sides[0]}, notes


def _only_two_columns(files: SourceFiles, path: Path) -> list[str]:
    columns = list(read_table(files, path, None).columns)
    if len(columns) != 2:
        raise UserError(f"{path}: has the columns {', '.join(columns)}; say which two are source and target")
    return columns


def _from_tables(files: SourceFiles, paths: list[Path], languages: list[str]) -> Examples:
    return Examples([row for path in paths for row in text_fields(read_table(files, path, languages), languages)])


def _from_lines(files: SourceFiles, source: Path, target: Path) -> Examples:
    sources, targets = _lines(files, source), _lines(files, target)
    if len(sources) != len(targets):
        raise UserError(
            f"{source} has {len(sources)} lines and {target} has {len(targets)}: line i of one must translate line i "
            "of the other"
        )
    return Examples(list(zip(sources, targets, strict=True)))


def _lines(files: SourceFiles, path: Path) -> list[str]:
    lines = files.read_text(path).removesuffix("\n").split("\n")
    return [line.removesuffix("\r") for line in lines]
