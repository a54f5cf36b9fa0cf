"""Text for language models: plain text files kept byte for byte, or documents in the rows of a table."""

from pathlib import Path

from lformer.data.columns import text_fields
from lformer.data.examples import Examples
from lformer.data.files import TABLES, SourceFiles
from lformer.data.tables import read_table
from lformer.settings import UserError

TEXTS = (".txt", ".text", ".txt.xz", ".xz")
EXPECTED = "train.txt (and validation.txt, test.txt), or one text file such as input.txt, also as .xz"
CUTS = (90, 95)  # percent of a single file's bytes: where validation and test begin


def decode(content: bytes) -> str:
    """Bytes as a string from which `encode` makes the same bytes again, be they UTF-8 or not."""
    return content.decode("utf-8", "surrogateescape")


def encode(text: str) -> bytes:
    """The bytes of a text, those that are not UTF-8 too."""
    return text.encode("utf-8", "surrogateescape")


def load_language(files: SourceFiles, text_columns: list[str]) -> tuple[dict[str, Examples], list[str]]:
    """The splits and the notes. A single text file is split 90/5/5 by position."""
    single = files.location.is_file()
    if single and not files.location.name.lower().endswith(TABLES):
        tables, texts = {}, {"train": [files.location]}  # any file is bytes
    else:
        tables, texts = files.by_split(TABLES), {} if single else files.by_split(TEXTS)
    named = "train" in texts and texts["train"][0].name.partition(".")[0].lower() == "train"
    if tables and named:
        raise UserError(
            f"{files.root}: both {texts['train'][0].name} and {tables['train'][0].name} are there; keep one"
        )
    if tables:
        return {split: _documents(files, paths, text_columns) for split, paths in tables.items()}, []
    if not texts:
        raise files.nothing_found(EXPECTED)
    contents = {split: files.read(paths[0]) for split, paths in texts.items()}
    notes = [note for split, content in contents.items() for note in _not_utf8(texts[split][0], content)]
    if len(contents) == 1 and (single or not named):
        path, content = texts["train"][0], contents["train"]
        contents = _by_position(path, content)
        sizes = "/".join(f"{len(part):,}" for part in contents.values())
        notes.append(f"{path.name}: {len(content):,} bytes split by position into {sizes}")
    return {split: Examples([(decode(content),)]) for split, content in contents.items()}, notes


def _documents(files: SourceFiles, paths: list[Path], text_columns: list[str]) -> Examples:
    return Examples([row for path in paths for row in text_fields(read_table(files, path, text_columns), text_columns)])


def _by_position(path: Path, content: bytes) -> dict[str, bytes]:
    validation, test = (character_start(content, len(content) * percent // 100) for percent in CUTS)
    parts = {"train": content[:validation], "validation": content[validation:test], "test": content[test:]}
    if not all(parts.values()):
        raise UserError(f"{path}: {len(content)} bytes are too few to split 90/5/5; name it train.txt to use all of it")
    return parts


def character_start(content: bytes, position: int) -> int:
    """The position, or the start of the UTF-8 character that it would cut in two."""
    start = position
    while 0 < start < len(content) and content[start] & 0xC0 == 0x80:
        start -= 1
    cuts_one = start < position <= start + 3 and content[start] >= 0xC0  # else these bytes are not UTF-8
    return start if cuts_one else position


def _not_utf8(path: Path, content: bytes) -> list[str]:
    try:
        content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        return [
            f"{path}, line {line}: byte 0x{content[error.start]:02x} at offset {error.start} is not UTF-8; "
            "only the byte tokenizer can read it"
        ]
    return []
