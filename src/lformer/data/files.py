"""The user's files: found by their names, read once, hashed as they are read, never written."""

import hashlib
import lzma
import re
from pathlib import Path

from lformer.data.examples import SPLITS
from lformer.settings import UserError

TABLES = (".parquet", ".csv", ".tsv", ".jsonl")
ARCHIVES = (".zip", ".tar", ".gz", ".tgz", ".bz2", ".7z", ".rar", ".zst")
# How people name their splits; the values are how we do.
SPLIT_NAMES = {"train": "train", "test": "test", **dict.fromkeys(("validation", "valid", "val", "dev"), "validation")}
SHARD = re.compile(r"-\d+-of-\d+$")  # train-00000-of-00002.parquet, as the hub names them


def listing(folder: Path) -> list[Path]:
    """What is in a folder, by name."""
    try:
        return sorted(folder.iterdir())
    except OSError as error:
        raise UserError(f"{folder}: cannot be read: {error.strerror}") from error


class SourceFiles:
    """The files of one data folder, or one file, with a fingerprint of what was read."""

    def __init__(self, location: Path):
        self.location = location.expanduser()
        try:
            if self.location.is_file():
                self.root, self.files = self.location.parent, [self.location]
            elif self.location.is_dir():
                self.root, self.files = self.location, [path for path in listing(self.location) if path.is_file()]
            else:
                raise UserError(f"{location}: there is no such file or folder; give the folder that holds the data")
        except OSError as error:  # a name that is too long, a folder that may not be entered
            raise UserError(f"{location}: cannot be read: {error.strerror}") from error
        self._hash = hashlib.sha256()

    @property
    def name(self) -> str:
        """What to call the data: the folder's name, or the file's without its ending."""
        name = self.location.resolve().name
        return name.partition(".")[0] or name if self.location.is_file() else name

    def read(self, path: Path, may_be_empty: bool = False) -> bytes:
        """The file's bytes, decompressed if it is an .xz file; they enter the fingerprint."""
        try:
            content = path.read_bytes()
        except OSError as error:
            raise UserError(f"{path}: cannot be read: {error.strerror}") from error
        name = path.relative_to(self.root).as_posix().encode("utf-8", "surrogateescape")
        for part in (name, content):
            self._hash.update(len(part).to_bytes(8, "little") + part)
        if path.suffix.lower() == ".xz":
            try:
                content = lzma.decompress(content)
            except lzma.LZMAError as error:
                raise UserError(f"{path}: is not a complete .xz file: {error}") from error
        if not content and not may_be_empty:
            raise UserError(f"{path}: the file is empty")
        return content

    def read_text(self, path: Path, may_be_empty: bool = False) -> str:
        """The file as UTF-8, without a byte order mark."""
        content = self.read(path, may_be_empty)
        try:
            return content.decode("utf-8").removeprefix("\ufeff")
        except UnicodeDecodeError as error:
            line = content.count(b"\n", 0, error.start) + 1
            raise UserError(
                f"{path}, line {line}: byte 0x{content[error.start]:02x} at offset {error.start} is not UTF-8; "
                "save the file as UTF-8"
            ) from error

    def fingerprint(self) -> str:
        """SHA-256 of the names and contents of everything that was read."""
        return self._hash.hexdigest()

    def by_split(self, endings: tuple[str, ...]) -> dict[str, list[Path]]:
        """The files named train.*, validation.*, test.* with one of the endings; or the only file there is, as train.

        A split may come in shards, train-00000-of-00002.parquet; otherwise two files for one split are refused.
        """
        data = [path for path in self.files if path.name.lower().endswith(endings)]
        if self.location.is_file():
            if not data:
                raise UserError(f"{self.location}: is not one of {', '.join(endings)}{self._archive_hint(self.files)}")
            return {"train": data}
        found: dict[str, list[Path]] = {}
        for path in data:
            split = SPLIT_NAMES.get(SHARD.sub("", path.name.partition(".")[0].lower()))
            if split is not None:
                found.setdefault(split, []).append(path)
        for split, paths in found.items():
            sharded = all(SHARD.search(path.name.partition(".")[0]) for path in paths)
            if len(paths) > 1 and not (sharded and len({path.suffix for path in paths}) == 1):
                names = ", ".join(path.name for path in paths)
                raise UserError(f"{self.root}: several files for the {split} split ({names}); keep one")
        if not found and len(data) == 1:
            return {"train": data}
        if "train" not in found and data:
            names = ", ".join(path.name for path in data[:5])
            raise UserError(f"{self.root}: none of {names} is the training split; name it train{data[0].suffix}")
        return {split: found[split] for split in SPLITS if split in found}

    def class_folders(self) -> dict[str, dict[str, Path]]:
        """Folders train/CLASS, validation/CLASS and test/CLASS: split -> class -> folder."""
        found: dict[str, dict[str, Path]] = {}
        for folder in listing(self.root) if self.location.is_dir() else []:
            split = SPLIT_NAMES.get(folder.name.lower())
            if split is None or not folder.is_dir():
                continue
            if split in found:
                raise UserError(f"{self.root}: several folders for the {split} split; keep one")
            classes = [p for p in listing(folder) if p.is_dir() and not p.name.startswith(".")]
            if classes:
                found[split] = {p.name: p for p in classes}
        return {split: found[split] for split in SPLITS if split in found}

    def nothing_found(self, expected: str) -> UserError:
        """The error for a folder without data: what was expected, and what there is."""
        names = [path.name for path in self.files[:5]]
        there = f"there is only {', '.join(names)}" if names else "there is no file"
        return UserError(f"{self.location}: {there}; expected {expected}{self._archive_hint(self.files)}")

    @staticmethod
    def _archive_hint(paths: list[Path]) -> str:
        archives = [path.name for path in paths if path.suffix.lower() in ARCHIVES]
        return f" ({archives[0]} is an archive: unpack it yourself first)" if archives else ""
