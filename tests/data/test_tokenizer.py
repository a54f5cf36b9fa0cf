"""Tokenizers: nothing is unknown, and what goes in comes out."""

import unicodedata
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from lformer.data import encode_texts, train_tokenizer
from lformer.data.encoding import encode_fields, pieces
from lformer.data.tokenizer import byte_alphabet, decode_bytes, encode_bytes
from lformer.settings import UserError

CORPUS = ["the quick brown fox jumps over the lazy dog", "the dog sleeps", "Ein schöner Tag\n\nfür den Hund"] * 3
FUZZ = settings(deadline=None, derandomize=True, max_examples=200)
BPE = train_tokenizer(CORPUS, vocab_size=300)
CASED = train_tokenizer(CORPUS, vocab_size=300, lowercase=False)
BYTE = train_tokenizer([], kind="byte")
BLANKS = train_tokenizer(["x\n\n\n\nx \n\n \nx\n \n  x\r\n\r\n\r\nx"] * 5, vocab_size=300)  # merges runs of blanks
SPECIAL = ["[PAD]", "[BOS]", "[EOS]", "[MASK]"]


def decode(tokenizer: PreTrainedTokenizerFast, text: str) -> str:
    return tokenizer.decode(tokenizer(text)["input_ids"])


@pytest.mark.parametrize("tokenizer", [BPE, CASED, BYTE])
def test_special_tokens(tokenizer: PreTrainedTokenizerFast) -> None:
    assert tokenizer.convert_tokens_to_ids(SPECIAL) == [0, 1, 2, 3]
    ids = (tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.mask_token_id)
    assert ids == (0, 1, 2, 3)
    assert (tokenizer.padding_side, tokenizer.truncation_side) == ("right", "right")
    assert set(tokenizer("a")) == {"input_ids", "attention_mask"}


@FUZZ
@given(st.text())
def test_any_unicode_comes_back(text: str) -> None:
    assert decode(CASED, text) == unicodedata.normalize("NFC", text)
    assert decode(BYTE, text) == text
    assert min(BYTE(text)["input_ids"], default=4) >= 4


@pytest.mark.parametrize("text", [*SPECIAL, "a [MASK] b[EOS]"])
def test_the_name_of_a_special_token_in_a_text_is_text(text: str) -> None:
    assert decode(CASED, text) == text
    for tokenizer in (BPE, CASED, BYTE):
        assert min(tokenizer(text)["input_ids"]) >= 4
        assert min(encode_texts(tokenizer, [(text,)])[0]) >= 4
    prompts = train_tokenizer(CORPUS, vocab_size=300)
    prompts.split_special_tokens = False  # as prepare sets it for language models
    assert {0, 1, 2, 3} & set(prompts(text)["input_ids"])
    assert min(encode_texts(prompts, [(text,)])[0]) >= 4
    assert {0, 1, 2, 3} & set(prompts(text)["input_ids"])


@FUZZ
@given(st.binary())
def test_any_bytes_come_back(content: bytes) -> None:
    assert decode_bytes(encode_bytes(content)) == content


@FUZZ
@given(st.text())
def test_bytes_are_what_the_byte_tokenizer_says(text: str) -> None:
    assert encode_bytes(text.encode()).tolist() == BYTE(text)["input_ids"] == encode_fields(BYTE, [text])[0]


def test_the_byte_alphabet_is_that_of_tokenizers() -> None:
    assert sorted(byte_alphabet()) == sorted(pre_tokenizers.ByteLevel.alphabet())
    assert BYTE.convert_ids_to_tokens([4 + ord("A"), 4 + ord(" ")]) == ["A", "Ġ"]
    assert len(BYTE) == 260


def test_normalisation() -> None:
    assert decode(BPE, "SCHO\u0308N") == "schön"
    assert decode(CASED, "SCHO\u0308N") == "SCHÖN"


def test_sizes() -> None:
    assert len(BPE) == 300
    assert 260 <= len(train_tokenizer(["aa"])) < 300
    assert len(train_tokenizer([])) == 260
    with pytest.raises(UserError, match="vocab_size=100 must be at least 260"):
        train_tokenizer(CORPUS, vocab_size=100)
    with pytest.raises(UserError, match="there is no tokenizer 'word', only bpe, byte"):
        train_tokenizer(CORPUS, kind="word")
    with pytest.raises(UserError, match="text 2 has bytes that are not UTF-8"):
        train_tokenizer(["a", "\udcff"])


def test_training_is_deterministic_and_saving_keeps_everything(tmp_path: Path) -> None:
    again = train_tokenizer(CORPUS, vocab_size=300)
    assert again.backend_tokenizer.to_str() == BPE.backend_tokenizer.to_str()
    BPE.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    text = "The dog [PAD] schläft"
    assert loaded(text)["input_ids"] == BPE(text)["input_ids"]
    assert loaded.pad_token_id == 0


def test_fields_are_joined_and_cut_on_the_right() -> None:
    a, b = (BPE(text)["input_ids"] for text in ("the dog", "sleeps"))
    assert encode_texts(BPE, [("the dog", "sleeps"), ("", "")]) == [[*a, 2, *b], [2]]
    assert encode_texts(BPE, [("the dog",), ("",)], max_length=1) == [a[:1], [2]]


@FUZZ
@given(
    st.lists(st.sampled_from(["a", "Dog", " ", "\n", "\r\n", ".", "'s", "\u0301", "1", "\u2028"]), max_size=60),
    st.integers(1, 9),
)
def test_pieces_have_the_ids_of_the_whole(parts: list[str], size: int) -> None:
    text = "".join(parts)
    cut = list(pieces(text, size))
    assert "".join(cut) == text
    for tokenizer in (BPE, BYTE, BLANKS):
        assert np.concatenate([[], *encode_fields(tokenizer, cut)]).tolist() == encode_fields(tokenizer, [text])[0]


def test_a_long_text_is_cut() -> None:
    assert [len(piece) for piece in pieces("abc\n" * 10, 12)] == [15, 12, 12, 1]
