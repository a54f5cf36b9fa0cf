"""Text from a trained model: a causal model goes on from a prompt, an encoder-decoder translates."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerFast
from transformers.generation.streamers import BaseStreamer
from transformers.utils import logging

from lformer.data import encode_texts
from lformer.data.encoding import encode_fields
from lformer.data.tokenizer import encode_bytes, is_byte_tokenizer
from lformer.models import LFormerForCausalLM, LFormerForConditionalGeneration
from lformer.nn.positions import UNLIMITED
from lformer.settings import UserError

TEMPERATURE = 0.8
BROKEN = "\N{REPLACEMENT CHARACTER}"
LONGEST_CHARACTER = 4  # bytes in UTF-8

Write = Callable[[str], object]


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How tokens are chosen."""

    max_new_tokens: int = 100
    temperature: float | None = None
    """0 takes the likeliest token; None is 0.8 for a causal model and 0 for a translation or a beam search."""
    top_k: int = 50
    """Only among this many likeliest tokens; 0 among all."""
    top_p: float = 1.0
    """Only among the likeliest tokens that together have this probability."""
    num_beams: int = 1
    """More than one: the likeliest whole text as far as a search over so many candidates finds it."""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.max_new_tokens < 1 or self.num_beams < 1:
            raise UserError("max_new_tokens and num_beams must be at least 1")
        if not 0 < self.top_p <= 1:
            raise UserError(f"top_p={self.top_p} must be above 0 and at most 1")
        if self.num_beams > 1 and (self.temperature or self.top_p < 1):
            drawn = "temperature" if self.temperature else "top_p"
            raise UserError(
                f"num_beams={self.num_beams} searches for the likeliest text and draws nothing: leave out {drawn}"
            )

    def options(self, *, translates: bool) -> dict[str, Any]:
        """The same for transformers' generate."""
        temperature = self.temperature
        if temperature is None:
            temperature = 0.0 if translates or self.num_beams > 1 else TEMPERATURE
        if temperature == 0:
            return {"do_sample": False, "num_beams": self.num_beams}
        return {"do_sample": True, "temperature": temperature, "top_k": self.top_k, "top_p": self.top_p}


@torch.inference_mode()
def continue_text(
    model: LFormerForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    prompt: bytes,
    sampling: Sampling,
    *,
    write: Write | None = None,
    note: Write = lambda text: None,
) -> str:
    """The prompt and what the model makes of it. Bytes that are no character of UTF-8 become U+FFFD in the result.

    Where positions have no limit, neither has the text: beyond the length of training the model sees the last of it.
    An empty prompt stands for the beginning of a line: the model is given a line end, which is not part of the result.
    `write` gets the text piece by piece as it comes, `note` what the user should know.
    """
    ids = prompt_ids(tokenizer, prompt, note)
    shown = len(ids) if prompt else 0
    new = _room(model, len(ids), sampling.max_new_tokens, note, slides=sampling.num_beams == 1)
    stream = TextStream(tokenizer, write) if write is not None and sampling.num_beams == 1 else None
    if stream is not None:
        stream.show(ids[:shown])
    torch.manual_seed(sampling.seed)
    kept = list(ids)
    while (left := len(ids) + new - len(kept)) > 0:
        seen, count = _window(model, len(kept), left) if sampling.num_beams == 1 else (len(kept), left)
        found = _go_on(model, kept[-seen:], count, sampling, stream)
        kept += found
        if len(found) < count or found[-1] == tokenizer.eos_token_id:
            break
    if stream is not None:
        stream.close()
    text = decode(tokenizer, kept if shown else kept[len(ids) :])
    if write is not None and stream is None:
        write(text)
    return text


def _window(model: LFormerForCausalLM, length: int, left: int) -> tuple[int, int]:
    """How many of the last tokens the model is given, and how many it makes of them.

    Beyond the length of training a model writes noise, so that then it goes on from the last half of that length, as
    often as it is full. Starting anew at every token would see more, and take the time of a whole pass for each.
    """
    limit = model.config.max_position_embeddings
    seen = length if length < limit else max(1, limit // 2)
    return seen, max(1, min(left, limit - seen))


def _go_on(
    model: LFormerForCausalLM, ids: Sequence[int], count: int, sampling: Sampling, stream: "TextStream | None"
) -> list[int]:
    """At most `count` new tokens."""
    given = torch.tensor([ids], device=model.device)
    generate: Any = model.generate  # type: ignore[misc]
    with _without_reminders():
        found = generate(
            given,
            attention_mask=torch.ones_like(given),
            max_new_tokens=count,
            streamer=stream,
            **sampling.options(translates=False),
        )
    new: list[int] = found[0, len(ids) :].tolist()
    return new


@torch.inference_mode()
def translate(
    model: LFormerForConditionalGeneration,
    tokenizer: PreTrainedTokenizerFast,
    texts: Sequence[str],
    sampling: Sampling,
    *,
    batch_size: int = 32,
    note: Write = lambda text: None,
) -> Iterator[str]:
    """The translation of every text, in their order, a batch at a time; no longer than the model has positions for. A
    blank text stays blank.
    """
    ids = encode_texts(tokenizer, [(text,) for text in texts])
    longest = max(map(len, ids), default=0)
    limit = model.config.max_position_embeddings
    if longest > limit and model.config.positional not in UNLIMITED:
        raise UserError(f"a text has {longest} tokens, and this model takes at most {limit}; translate it in parts")
    if longest > limit:
        note(f"a text has {longest} tokens, more than the {limit} that the model was trained on; it may lose its way")
    torch.manual_seed(sampling.seed)
    for start in range(0, len(ids), batch_size):
        batch = range(start, min(start + batch_size, len(ids)))
        asked = [index for index in batch if texts[index].strip()]
        found = translate_ids(model, tokenizer, [ids[index] for index in asked], sampling) if asked else []
        done = dict(zip(asked, found, strict=True))
        yield from (decode(tokenizer, done[index]) if index in done else "" for index in batch)


def translate_ids(
    model: LFormerForConditionalGeneration,
    tokenizer: PreTrainedTokenizerFast,
    ids: Sequence[Sequence[int]],
    sampling: Sampling,
) -> list[list[int]]:
    """A batch of sources to their translations, as tokens."""
    inputs = tokenizer.pad({"input_ids": [list(row) for row in ids]}, padding=True, return_tensors="pt")
    generate: Any = model.generate  # type: ignore[misc]
    with _without_reminders():
        found = generate(
            inputs["input_ids"].to(model.device),
            attention_mask=inputs["attention_mask"].to(model.device),
            max_new_tokens=_room(model, 1, sampling.max_new_tokens),
            **sampling.options(translates=True),
        )
    return found.tolist()


@contextmanager
def _without_reminders() -> Iterator[None]:
    """Transformers has a word of its own about lengths, which we have said already."""
    before = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(before)


def prompt_ids(tokenizer: PreTrainedTokenizerFast, prompt: bytes, note: Write = lambda text: None) -> list[int]:
    """The tokens of a prompt, never none, as in training: the name of a special token is text, and a prompt that is not
    UTF-8 is bytes to the byte tokenizer.
    """
    if is_byte_tokenizer(tokenizer):
        return encode_bytes(prompt or b"\n").tolist()
    (ids, line_end) = encode_fields(tokenizer, [to_text(prompt, note, "the prompt"), "\n"])
    return ids or line_end or [tokenizer.eos_token_id]


def to_text(content: bytes, note: Write, what: str) -> str:
    """As UTF-8; what is not becomes U+FFFD, and a note says so."""
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        note(f"byte {error.start} of {what} is not UTF-8: it becomes {BROKEN}, as this model has a BPE tokenizer")
        return content.decode("utf-8", "replace")


def lines_of(text: str) -> list[str]:
    """The lines between line ends alone: other separators of Unicode, such as U+2028, are part of a line."""
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]


def decode(tokenizer: PreTrainedTokenizerFast, ids: Sequence[int]) -> str:
    return str(tokenizer.decode(list(ids), skip_special_tokens=True))


class TextStream(BaseStreamer):
    """Writes the text of tokens as they come, but no half characters."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, write: Write) -> None:
        self.tokenizer, self.write = tokenizer, write
        self.waiting: list[int] = []
        self.is_prompt = True

    def put(self, value: Tensor) -> None:
        """Called by `generate`: first with the prompt, then with every new token."""
        if self.is_prompt:
            self.is_prompt = False
        else:
            self.show(value.flatten().tolist())

    def show(self, ids: list[int]) -> None:
        """Write what is decided: the last bytes may be no character yet, and become one with those that follow."""
        self.waiting += ids
        longest = min(LONGEST_CHARACTER, len(self.waiting))
        places = [len(self.waiting) - waiting for waiting in range(longest)]
        for place in places:
            if not decode(self.tokenizer, self.waiting[:place]).endswith(BROKEN):
                return self._write(place)
        if longest == LONGEST_CHARACTER:  # the first of them are no character, whatever follows
            for place in places[:0:-1]:
                if not self._cuts(place):
                    return self._write(place)
        return None

    def _cuts(self, place: int) -> bool:
        """Whether bytes that belong together stand on both sides of the place."""
        parts = (self.waiting[:place], self.waiting[place:])
        return "".join(decode(self.tokenizer, part) for part in parts) != decode(self.tokenizer, self.waiting)

    def _write(self, place: int) -> None:
        self.write(decode(self.tokenizer, self.waiting[:place]))
        self.waiting = self.waiting[place:]

    def end(self) -> None:
        """Called by `generate` at its end; more may follow, after a prompt that was seen before."""
        self.is_prompt = True

    def close(self) -> None:
        """Write what is left."""
        self._write(len(self.waiting))


def _room(model: Any, length: int, asked: int, note: Write = lambda text: None, *, slides: bool = False) -> int:
    """How many new tokens may follow `length` tokens: all that were asked for, if positions have no table."""
    limit = model.config.max_position_embeddings
    if model.config.positional in UNLIMITED:
        if length + asked > limit:
            then = "beyond them it sees the last half of as many" if slides else "it may lose its way"
            note(f"{length + asked} tokens are more than the {limit} that the model was trained on; {then}")
        return asked
    if length >= limit:
        raise UserError(
            f"the prompt has {length} tokens, and this model has positions for {limit}, of which one at least must be "
            "left for its answer; shorten the prompt (a model with positional=rope has no such limit)"
        )
    if length + asked > limit:
        note(f"this model has positions for {limit} tokens: it stops after {limit - length} new ones")
    return min(asked, limit - length)
