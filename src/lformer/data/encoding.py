"""Texts to token ids, in the one way that preparing and predicting share."""

from collections.abc import Iterator, Sequence

from transformers import PreTrainedTokenizerFast

PIECE = 1 << 16  # characters of a long text that are encoded at a time


def encode_texts(
    tokenizer: PreTrainedTokenizerFast, texts: Sequence[tuple[str, ...]], max_length: int | None = None
) -> list[list[int]]:
    """The ids of every example: its fields with [EOS] between them, cut on the right. Never empty.

    No special token is added but [EOS], which also stands alone for an example without any text.
    """
    return [ids[:max_length] for ids in encode_whole(tokenizer, texts)]


def encode_whole(tokenizer: PreTrainedTokenizerFast, texts: Sequence[tuple[str, ...]]) -> list[list[int]]:
    """As `encode_texts`, in full length."""
    ids = iter(encode_fields(tokenizer, [field for fields in texts for field in fields]))
    separator = tokenizer.eos_token_id
    examples = []
    for fields in texts:
        joined: list[int] = []
        for i in range(len(fields)):
            joined += ([separator] if i else []) + next(ids)
        examples.append(joined or [separator])
    return examples


def encode_fields(tokenizer: PreTrainedTokenizerFast, texts: Sequence[str]) -> list[list[int]]:
    """The ids of every text by itself; the name of a special token inside a text is text."""
    backend = tokenizer.backend_tokenizer
    before = backend.encode_special_tokens
    backend.encode_special_tokens = True
    backend.no_truncation()
    backend.no_padding()
    try:
        return [encoding.ids for encoding in backend.encode_batch_fast(list(texts), add_special_tokens=False)]
    finally:
        backend.encode_special_tokens = before


def pieces(text: str, size: int = PIECE) -> Iterator[str]:
    """A long text in parts whose ids, one after another, are the ids of the whole.

    Our tokenizer never joins a line's last character to the line end after it, unless that character is a blank:
    so it is cut there. A text without such a place is left whole.
    """
    start = 0
    while len(text) - start > size:
        cut = start + size
        while True:
            cut = text.find("\n", cut)
            if cut < 0:
                yield text[start:]
                return
            if not text[cut - 1].isspace():
                break
            cut += 1
        yield text[start:cut]
        start = cut
    yield text[start:]
