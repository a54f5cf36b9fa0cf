"""Text to a prepared folder: everything is written beside it and then renamed, so that it is whole or not there."""

import os
import platform
import shutil
import uuid
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
import transformers
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

from lformer.data.columns import is_unicode
from lformer.data.encoding import encode_fields, encode_whole, pieces
from lformer.data.examples import Examples, TextData
from lformer.data.language import encode
from lformer.data.prepared import (
    FORMAT,
    MANIFEST,
    TOKENIZER,
    TOKENIZER_FILES,
    VERSION,
    Prepared,
    array_file,
    read_manifest,
    resolved_settings,
    sha256_of,
)
from lformer.data.storage import Tokens, write_array, write_json
from lformer.data.tokenizer import encode_bytes, train_tokenizer, wrap
from lformer.settings import UserError
from lformer.version import __version__

Progress = Callable[[str, int, int], None]
BATCH = 1000  # texts that are encoded at a time
PIECES = 64  # pieces of a long text that are


def prepare(
    data: TextData,
    out: Path,
    *,
    max_length: int = 128,
    vocab_size: int = 30_000,
    lowercase: bool = True,
    tokenizer_kind: str = "bpe",
    tokenizer: PreTrainedTokenizerFast | None = None,
    progress: Progress | None = None,
) -> Prepared:
    """Tokens of all splits, in the folder `out`; what is there already is kept if nothing has changed.

    Args:
        data: from `load_data`.
        out: a new folder, an empty one, or one that was prepared before. Any other is refused.
        max_length: longest example, cut on the right; a language model's text is not cut.
        vocab_size, lowercase, tokenizer_kind: of the tokenizer that is trained on the training split.
        tokenizer: one to use instead; it gets no template of special tokens.
        progress: called with the stage ("tokenizer" or a split), the texts done and all of them
            (of a language model the characters).
    """
    out = Path(out).expanduser().resolve()
    least = 2 if data.task == "translation" else 1
    if max_length < least:
        raise UserError(f"max_length={max_length} must be at least {least}")
    asked = {"max_length": max_length, "vocab_size": vocab_size, "lowercase": lowercase}
    settings = resolved_settings(**asked, tokenizer_kind=tokenizer_kind, tokenizer=tokenizer)
    existing = _existing(out)
    if existing is not None and not existing.stale_reasons(data, **settings):
        return existing
    report = progress or (lambda stage, done, total: None)
    byte_level = tokenizer is None and tokenizer_kind == "byte"
    if not byte_level:
        _refuse_other_bytes(data)
    if tokenizer is None:
        texts = _with_progress(_training_texts(data), "tokenizer", report)
        used = train_tokenizer(texts, vocab_size=vocab_size, lowercase=lowercase, kind=tokenizer_kind)
    else:
        used = _adopted(tokenizer)
    if data.task == "language-modeling":
        used.split_special_tokens = False  # so that "[MASK]" in a prompt is a mask
    else:
        used.model_max_length = max_length
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        partial = out.parent / f".{out.name}.{uuid.uuid4().hex[:8]}.partial"
        partial.mkdir()
    except OSError as error:
        raise UserError(f"{out}: cannot be made: {error.strerror}") from error
    try:
        encoder = Encoder(used, data.task, max_length, byte_level, own=tokenizer is None)
        counts = {split: encoder.write(partial, split, part, report) for split, part in data.splits.items()}
        _save_tokenizer(used, partial / TOKENIZER)
        write_json(partial / MANIFEST, _manifest(data, settings, used, counts, partial))
        _replace(out, partial)
    except OSError as error:
        raise UserError(f"{out}: cannot be written: {error.strerror or error}; nothing was changed") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return Prepared.open(out)


class Encoder:
    """Writes the arrays of a split."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, task: str, max_length: int, byte_level: bool, own: bool):
        self.tokenizer, self.task, self.max_length = tokenizer, task, max_length
        self.byte_level = byte_level
        self.own = own
        self.dtype = np.uint16 if len(tokenizer) <= 1 << 16 else np.int32

    def write(self, folder: Path, split: str, examples: Examples, report: Progress) -> dict[str, int]:
        """The counts of what was written."""
        tokens, targets = Tokens(self.dtype), Tokens(self.dtype)
        total = len(examples)
        if self.task == "language-modeling":
            self._add_documents(tokens, ["\n".join(fields) for fields in examples.texts], split, report)
        for start in range(0, total if self.task != "language-modeling" else 0, BATCH):
            batch = examples.texts[start : start + BATCH]
            if self.task == "translation":
                tokens.add(encode_whole(self.tokenizer, [(source,) for source, _ in batch]), self.max_length)
                # One place is left for the [BOS] before it, or the [EOS] after it.
                targets.add(encode_fields(self.tokenizer, [target for _, target in batch]), self.max_length - 1)
            else:
                tokens.add(encode_whole(self.tokenizer, batch), self.max_length)
            report(split, min(start + BATCH, total), total)
        arrays = {"tokens": tokens.tokens(), "offsets": tokens.offsets()}
        if examples.labels is not None:
            arrays["labels"] = np.array(examples.labels, dtype=np.int64)
        counts = {"examples": total, "tokens": tokens.count, "truncated": tokens.truncated}
        if self.task == "translation":
            arrays |= {"target_tokens": targets.tokens(), "target_offsets": targets.offsets()}
            counts |= {"target_tokens": targets.count, "target_truncated": targets.truncated}
        for array, values in arrays.items():
            write_array(folder / array_file(split, array), values)
        return counts

    def _add_documents(self, tokens: Tokens, texts: list[str], split: str, report: Progress) -> None:
        """Whole documents, with [EOS] between one and the next."""
        done, total = 0, sum(map(len, texts))
        end = np.array([self.tokenizer.eos_token_id], dtype=self.dtype)
        for number, text in enumerate(texts, start=1):
            parts = []
            for chunk in self._chunks(text):
                if self.byte_level:
                    parts += [encode_bytes(encode(piece)) for piece in chunk]
                else:
                    parts += [np.array(ids, dtype=self.dtype) for ids in encode_fields(self.tokenizer, chunk)]
                done += sum(map(len, chunk))
                report(split, done, total)
            tokens.add_document([*parts, end] if number < len(texts) else parts)

    def _chunks(self, text: str) -> Iterator[list[str]]:
        """Some pieces at a time: an encoding takes a hundred times the memory of its text."""
        # The pieces of our own tokenizer are equal to the whole; another one's might not be.
        cut = pieces(text) if self.own else iter([text])
        while chunk := list(islice(cut, PIECES)):
            yield chunk


def _training_texts(data: TextData) -> list[str]:
    texts = [field for fields in data.splits["train"].texts for field in fields]
    return [piece for text in texts for piece in pieces(text)] if data.task == "language-modeling" else texts


def _with_progress(texts: list[str], stage: str, report: Progress) -> Iterator[str]:
    for number, text in enumerate(texts, start=1):
        yield text
        if number % BATCH == 0 or number == len(texts):
            report(stage, number, len(texts))


def _refuse_other_bytes(data: TextData) -> None:
    for split, examples in data.splits.items():
        for number, fields in enumerate(examples.texts, start=1):
            for text in fields:
                if not is_unicode(text):
                    notes = [note for note in data.notes if "is not UTF-8" in note]
                    where = (
                        notes[0]
                        if notes
                        else f"{data.name}, {split} split, text {number}: has bytes that are not UTF-8"
                    )
                    raise UserError(f"{where}; use tokenizer_kind='byte', or save the text as UTF-8")


def _adopted(tokenizer: PreTrainedTokenizerFast) -> PreTrainedTokenizerFast:
    """A copy of a tokenizer that was given, which adds no special tokens."""
    special = {name: value for name, value in tokenizer.special_tokens_map.items() if isinstance(value, str)}
    for name in ("pad_token", "eos_token"):
        if name not in special:
            raise UserError(f"the tokenizer has no {name}; set tokenizer.{name}")
    backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    backend.post_processor = None
    return wrap(backend, special)


def _save_tokenizer(tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    tokenizer.save_pretrained(folder)
    for path in folder.iterdir():  # some versions of transformers repeat parts of it in other files
        if path.name not in TOKENIZER_FILES:
            path.unlink()


def _existing(out: Path) -> Prepared | None:
    """The prepared folder that is there; None if it is empty, missing or a damaged one of ours."""
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return None
    try:
        manifest = read_manifest(out)
    except UserError as error:
        raise UserError(
            f"{out}: is there already and will not be overwritten ({error}); choose another folder"
        ) from error
    ours = {out / MANIFEST, out / TOKENIZER, *(out / name for name in manifest["files"])}
    others = sorted({*out.iterdir(), *(out / TOKENIZER).glob("*")} - ours)
    if others:
        raise UserError(
            f"{out}: has {others[0].name}, which lformer did not write; move it away or choose another folder"
        )
    try:
        return Prepared.open(out)
    except UserError:
        return None


def _manifest(
    data: TextData,
    settings: dict[str, Any],
    tokenizer: PreTrainedTokenizerFast,
    counts: dict[str, dict[str, int]],
    folder: Path,
) -> dict[str, Any]:
    files = [*sorted(folder.glob("*.npy")), *(folder / TOKENIZER / name for name in TOKENIZER_FILES)]
    return {
        "format": FORMAT,
        "version": VERSION,
        "name": data.name,
        "task": data.task,
        "fingerprint": data.fingerprint,
        "settings": settings,
        "vocab_size": len(tokenizer),
        "label_names": data.label_names,
        "splits": counts,
        "notes": data.notes,
        "files": {
            path.relative_to(folder).as_posix(): {"bytes": path.stat().st_size, "sha256": sha256_of(path)}
            for path in files
        },
        "versions": {
            "python": platform.python_version(),
            "lformer": __version__,
            "tokenizers": tokenizers.__version__,
            "transformers": transformers.__version__,
            "numpy": np.__version__,
        },
    }


def _replace(out: Path, partial: Path) -> None:
    """Puts the new folder in the place of an old one, which stays until the new one is there."""
    if not out.exists():
        os.rename(partial, out)
        return
    old = partial.with_suffix(".old")
    os.rename(out, old)
    try:
        os.rename(partial, out)
    except BaseException:
        os.rename(old, out)
        raise
    shutil.rmtree(old, ignore_errors=True)
