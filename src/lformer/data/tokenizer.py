"""Byte-level tokenizers: nothing is unknown to them.

"bpe" normalises to NFC and, by default, to lower case, cuts the text as GPT-2 does, and merges pairs of bytes that are
frequent in the training texts. "byte" has the 256 bytes and nothing else, and keeps every byte as it is.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from lformer.data.columns import is_unicode
from lformer.settings import UserError

SPECIAL = {"pad_token": "[PAD]", "bos_token": "[BOS]", "eos_token": "[EOS]", "mask_token": "[MASK]"}  # ids 0 to 3
KINDS = ("bpe", "byte")
SMALLEST = len(SPECIAL) + 256


def train_tokenizer(
    texts: Iterable[str], *, vocab_size: int = 30_000, lowercase: bool = True, kind: str = "bpe"
) -> PreTrainedTokenizerFast:
    """A tokenizer for texts like these, of at most `vocab_size` types; fewer if the texts have no more pairs to merge.

    >>> tokenizer = train_tokenizer(["low lower lowest"] * 2, vocab_size=263)
    >>> tokenizer.convert_ids_to_tokens(tokenizer("Lower")["input_ids"])
    ['low', 'e', 'r']

    Args:
        texts: the training split's, and no others.
        vocab_size: number of types, the four special ones and the 256 bytes included.
        lowercase: of "bpe" only.
        kind: "bpe" or "byte"; "byte" looks at no text.
    """
    if kind not in KINDS:
        raise UserError(f"there is no tokenizer {kind!r}, only {', '.join(KINDS)}")
    if kind == "byte":
        return wrap(_byte_backend())
    if vocab_size < SMALLEST:
        raise UserError(f"vocab_size={vocab_size} must be at least {SMALLEST}: 256 bytes and 4 special tokens")
    backend = Tokenizer(models.BPE())
    backend.normalizer = normalizers.Sequence(
        [normalizers.NFC(), normalizers.Lowercase()] if lowercase else [normalizers.NFC()]
    )
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(SPECIAL.values()),
        initial_alphabet=byte_alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(_checked(texts), trainer)
    return wrap(backend)


def _checked(texts: Iterable[str]) -> Iterator[str]:
    for number, text in enumerate(texts, start=1):
        if not is_unicode(text):
            raise UserError(f"text {number} has bytes that are not UTF-8; only the byte tokenizer can read them")
        yield text


def wrap(backend: Tokenizer, special: dict[str, str] | None = None) -> PreTrainedTokenizerFast:
    """The tokenizer for transformers. "[PAD]" in a text is text, never a special token."""
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        model_input_names=["input_ids", "attention_mask"],
        clean_up_tokenization_spaces=False,
        split_special_tokens=True,
        padding_side="right",
        truncation_side="right",
        **(SPECIAL if special is None else special),
    )


def byte_alphabet() -> list[str]:
    """The printable character that stands for every byte, in the order of the bytes (GPT-2's table)."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = iter(range(0x100, 0x200))
    return [chr(byte) if byte in plain else chr(next(others)) for byte in range(256)]


def _byte_backend() -> Tokenizer:
    vocabulary = {token: i for i, token in enumerate([*SPECIAL.values(), *byte_alphabet()])}
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    backend.add_special_tokens(list(SPECIAL.values()))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    return backend


def is_byte_level(tokenizer: PreTrainedTokenizerFast) -> bool:
    """Whether every character of a token stands for one byte of text, as in our own tokenizers and GPT-2's."""
    rules = json.loads(tokenizer.backend_tokenizer.to_str())["decoder"] or {}
    return rules.get("type") == "ByteLevel"


def is_byte_tokenizer(tokenizer: PreTrainedTokenizerFast) -> bool:
    """Whether it is ours of kind "byte", whose ids `encode_bytes` makes."""
    first = len(SPECIAL)
    return len(tokenizer) == SMALLEST and tokenizer.convert_ids_to_tokens([*range(first, SMALLEST)]) == byte_alphabet()


def same_tokens(one: PreTrainedTokenizerFast, other: PreTrainedTokenizerFast) -> bool:
    """Whether two tokenizers make the same ids of every text: rules, merges and vocabulary are those of both."""
    return _rules(one) == _rules(other)


def _rules(tokenizer: PreTrainedTokenizerFast) -> dict[str, Any]:
    rules: dict[str, Any] = json.loads(tokenizer.backend_tokenizer.to_str())
    return {name: rules.get(name) for name in ("normalizer", "pre_tokenizer", "model")}


def encode_bytes(content: bytes) -> np.ndarray:
    """The ids that the byte tokenizer gives to these bytes, UTF-8 or not: 4 + byte. uint16."""
    return np.frombuffer(content, dtype=np.uint8).astype(np.uint16) + np.uint16(len(SPECIAL))


def decode_bytes(ids: np.ndarray) -> bytes:
    """The bytes of the byte tokenizer's ids, without the special ones."""
    ids = np.asarray(ids)
    return (ids[ids >= len(SPECIAL)] - len(SPECIAL)).astype(np.uint8).tobytes()
