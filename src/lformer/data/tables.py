"""Tables: the columns of csv, tsv, jsonl and parquet files, with the place of every row for error messages."""

import csv
import difflib
import io
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lformer.data.files import SourceFiles
from lformer.data.optional import import_optional
from lformer.settings import UserError


@dataclass(frozen=True)
class Table:
    """Some columns of a file."""

    path: Path
    columns: dict[str, list[Any]]
    places: list[int]
    """The line on which a row begins, or the row's number where a file has no lines."""
    unit: str
    """"line" or "row"."""

    def where(self, row: int) -> str:
        """The place of a row, as error messages name it."""
        return f"{self.path}, {self.unit} {self.places[row]}"

    def __len__(self) -> int:
        return len(self.places)


def read_table(files: SourceFiles, path: Path, wanted: list[str] | None) -> Table:
    """The wanted columns of a file; all of them if None."""
    read = {".csv": _read_delimited, ".tsv": _read_delimited, ".jsonl": _read_jsonl, ".parquet": _read_parquet}
    table = read[path.suffix.lower()](files, path, wanted)
    if not len(table):
        raise UserError(f"{path}: there is no row in it")
    return table


def _select(path: Path, wanted: list[str] | None, there: list[str]) -> list[str]:
    """The wanted columns, if the file has them."""
    doubled = [name for name in there if there.count(name) > 1]
    if doubled:
        raise UserError(f"{path}: the column {doubled[0]!r} is there twice; rename one")
    for name in wanted or []:
        if name not in there:
            near = difflib.get_close_matches(name, there, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            columns = ", ".join(repr(column)[:60] for column in there[:20])
            raise UserError(f"{path}: there is no column {name!r}, only {columns}{hint}")
    return there if wanted is None else wanted


def _read_delimited(files: SourceFiles, path: Path, wanted: list[str] | None) -> Table:
    """A csv or tsv file whose first line names the columns; fields may be quoted with double quotes."""
    text = files.read_text(path)
    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    records = _records(path, text, delimiter)
    header = next(records, (0, []))[1]
    if not header:
        raise UserError(f"{path}: the file has no line that names the columns")
    names = _select(path, wanted, header)
    indices = [header.index(name) for name in names]
    columns: dict[str, list[Any]] = {name: [] for name in names}
    places = []
    for line, fields in records:
        if len(fields) != len(header):
            raise UserError(
                f"{path}, line {line}: {len(fields)} fields, but the first line names {len(header)} columns; "
                "is a quote missing or a delimiter unquoted?"
            )
        places.append(line)
        for name, index in zip(names, indices, strict=True):
            columns[name].append(fields[index])
    return Table(path, columns, places, "line")


def _records(path: Path, text: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """The records that are not blank, each with the line on which it begins."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    limit = csv.field_size_limit(min(sys.maxsize, 2**31 - 1))  # a long document is no mistake
    try:
        while True:
            line = reader.line_num + 1
            try:
                fields = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                raise UserError(
                    f"{path}, line {line}: broken quoting ({error}); close the quote that this row opens, and write "
                    'a quote inside a quoted field as ""'
                ) from error
            if fields:
                yield line, fields
    finally:
        csv.field_size_limit(limit)


def _read_jsonl(files: SourceFiles, path: Path, wanted: list[str] | None) -> Table:
    """One JSON object a line."""
    columns: dict[str, list[Any]] = {}
    places: list[int] = []
    for line, text in enumerate(files.read_text(path).split("\n"), start=1):
        if not text.strip():
            continue
        try:
            row = json.loads(text)
        except (ValueError, RecursionError) as error:  # a number of too many digits is a plain ValueError
            raise UserError(f"{path}, line {line}: is not JSON: {error}") from error
        if not isinstance(row, dict):
            raise UserError(f'{path}, line {line}: is not a JSON object; write {{"text": ..., "label": ...}}')
        if not places:
            columns = {name: [] for name in _select(path, wanted, list(row))}
        for name, values in columns.items():
            if name not in row:
                raise UserError(f"{path}, line {line}: there is no {name!r} in this row, only {str(list(row))[:200]}")
            values.append(row[name])
        places.append(line)
    return Table(path, columns, places, "line")


def _read_parquet(files: SourceFiles, path: Path, wanted: list[str] | None) -> Table:
    parquet = import_optional("pyarrow.parquet", "hub", f"{path}: reading a parquet file")
    arrow = import_optional("pyarrow", "hub", f"{path}: reading a parquet file")
    content = files.read(path)
    try:
        file = parquet.ParquetFile(arrow.BufferReader(content))
        names = _select(path, wanted, file.schema_arrow.names)
        table = file.read(columns=names)
        columns = {name: table.column(name).to_pylist() for name in names}
    except (arrow.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = str(error).partition("\n")[0][:200]
        raise UserError(f"{path}: is not a parquet file, or a damaged one: {reason}") from error
    return Table(path, columns, list(range(1, table.num_rows + 1)), "row")
