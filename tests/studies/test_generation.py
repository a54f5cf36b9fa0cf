"""Text from a trained model: prompts of all kinds, limits, streaming, and BLEU."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from lformer import LFormerForCausalLM, LFormerForConditionalGeneration
from lformer.data import Prepared, load_data, prepare, train_tokenizer
from lformer.settings import UserError
from lformer.studies import generation
from lformer.studies.bleu import bleu
from lformer.studies.generation import Sampling, TextStream, continue_text, decode, lines_of, prompt_ids, translate
from tests.models.cases import make_config
from tests.train.conftest import write_pairs

BYTE = train_tokenizer([], kind="byte")
BPE = train_tokenizer(["low lower lowest slow slower"] * 3, vocab_size=280)


def causal(tokenizer: Any = BYTE, **changes: Any) -> LFormerForCausalLM:
    torch.manual_seed(0)
    special = {"bos_token_id": 1, "eos_token_id": 2}
    return LFormerForCausalLM(make_config(vocab_size=len(tokenizer), **special, **changes)).eval()


def go_on(prompt: bytes, tokenizer: Any = BYTE, notes: list[str] | None = None, **options: Any) -> str:
    sampling = Sampling(**{"max_new_tokens": 5, **options})
    note: Callable[[str], object] = (notes if notes is not None else []).append
    return continue_text(causal(tokenizer), tokenizer, prompt, sampling, note=note)


def test_the_prompt_comes_first_and_the_seed_decides_the_rest() -> None:
    first, again, other = (go_on(b"to be", seed=seed, top_k=0) for seed in (0, 0, 1))
    assert first == again != other
    assert all(text.startswith("to be") for text in (first, other))


def test_without_a_prompt_a_line_begins() -> None:
    model = causal()
    text = continue_text(model, BYTE, b"", Sampling(max_new_tokens=5, temperature=0))
    after = continue_text(model, BYTE, b"\n", Sampling(max_new_tokens=5, temperature=0))
    assert after == "\n" + text


@pytest.mark.parametrize("prompt", [b"\xff\xfe", b"caf\xc3", "\N{SNOWMAN}".encode()[:2]])
def test_bytes_that_are_no_character(prompt: bytes) -> None:
    assert prompt_ids(BYTE, prompt) == [4 + byte for byte in prompt], "the byte tokenizer takes them as they are"
    assert generation.BROKEN in go_on(prompt)
    notes: list[str] = []
    assert generation.BROKEN in go_on(prompt, BPE, notes)
    assert "is not UTF-8" in notes[0]


@pytest.mark.parametrize("tokenizer", [BYTE, BPE], ids=["byte", "bpe"])
def test_characters_that_the_tokenizer_never_saw(tokenizer: Any) -> None:
    prompt = "雪 ☃"
    assert go_on(prompt.encode(), tokenizer).startswith(prompt)


def test_a_prompt_that_leaves_no_room() -> None:
    with pytest.raises(UserError, match=r"the prompt has 24 tokens, and this model has positions for 24, .*rope"):
        go_on(b"x" * 24)
    notes: list[str] = []
    text = go_on(b"x" * 20, notes=notes, max_new_tokens=50, temperature=0.0)
    assert notes == ["this model has positions for 24 tokens: it stops after 4 new ones"]
    assert len(prompt_ids(BYTE, text.encode())) >= 20
    go_on(b"x" * 20, notes=notes, max_new_tokens=4)
    assert len(notes) == 1


def test_rotary_positions_have_no_limit() -> None:
    notes: list[str] = []
    sampling = Sampling(max_new_tokens=10, temperature=0)
    text = continue_text(causal(positional="rope"), BYTE, b"x" * 30, sampling, note=notes.append)
    assert text.startswith("x" * 30)
    said = "40 tokens are more than the 24 that the model was trained on; "
    assert notes == [said + "beyond them it sees the last half of as many"]
    beams = Sampling(max_new_tokens=10, num_beams=2)
    assert continue_text(causal(positional="rope"), BYTE, b"x" * 30, beams, note=notes.append).startswith("x" * 30)
    assert notes[1:] == [said + "it may lose its way"], "a search cannot be cut"


@pytest.mark.parametrize("start", [1, 20, 23, 24, 30])
def test_a_long_text_is_made_in_windows_of_the_length_of_training(start: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model = causal(positional="rope")
    windows: list[tuple[int, int]] = []
    plain = model.generate

    def generate(given: torch.Tensor, **options: Any) -> Any:
        windows.append((given.shape[1], options["max_new_tokens"]))
        return plain(given, **{**options, "eos_token_id": None})

    monkeypatch.setattr(model, "generate", generate)
    pieces: list[str] = []
    sampling = Sampling(max_new_tokens=60, temperature=2.0, top_k=0)
    text = continue_text(model, BYTE, b"x" * start, sampling, write=pieces.append)
    assert "".join(pieces) == text
    assert sum(new for _, new in windows) == 60
    assert all(seen + new <= 24 for seen, new in windows)
    first = (start, 24 - start) if start < 24 else (12, 12)
    assert windows[0] == first
    assert set(windows[1:-1]) <= {(12, 12)}


def test_the_windows_of_a_greedy_text_go_on_from_its_end() -> None:
    model = causal(positional="rope")
    text = continue_text(model, BYTE, b"x" * 20, Sampling(max_new_tokens=8, temperature=0))
    ids = prompt_ids(BYTE, b"x" * 20)
    for _ in range(8):
        seen = ids if len(ids) < 24 else ids[len(ids) - 12 - (len(ids) - 24) :]
        ids = [*ids, int(model(input_ids=torch.tensor([seen])).logits[0, -1].argmax())]
    assert text == decode(BYTE, ids)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"top_p": 0.0}, "top_p=0.0 must be above 0"),
        ({"top_p": 1.5}, "top_p=1.5"),
        ({"num_beams": 2, "temperature": 0.5}, "num_beams=2 .* leave out temperature"),
        ({"num_beams": 2, "top_p": 0.5}, "num_beams=2 .* leave out top_p"),
        ({"max_new_tokens": 0}, "at least 1"),
    ],
)
def test_options_that_make_no_sense(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Sampling(**options)


def test_top_k_and_top_p_of_one_token_are_greedy() -> None:
    greedy = go_on(b"to be", temperature=0.0)
    assert go_on(b"to be", temperature=1.0, top_k=1) == greedy
    assert go_on(b"to be", temperature=1.0, top_p=1e-6, top_k=0) == greedy
    assert go_on(b"to be", num_beams=3)  # a search, which draws nothing


def test_a_stream_writes_what_comes_out_in_the_end() -> None:
    for seed in range(5):
        pieces: list[str] = []
        sampling = Sampling(max_new_tokens=12, temperature=2.0, top_k=0, seed=seed)
        text = continue_text(causal(), BYTE, b"so ", sampling, write=pieces.append)
        assert "".join(pieces) == text
        assert len(pieces) > 3


def test_a_stream_waits_for_whole_characters() -> None:
    pieces: list[str] = []
    stream = TextStream(BYTE, pieces.append)
    stream.put(torch.tensor([[5, 6]]))  # the prompt, which is not shown
    for byte in "é☃".encode():
        stream.put(torch.tensor([4 + byte]))
    for byte in b"\xc3":
        stream.put(torch.tensor([4 + byte]))
    stream.end()
    stream.put(torch.tensor([[6, 7]]))  # the prompt of the next window
    assert pieces == ["é", "☃"]
    stream.put(torch.tensor([4 + 0xA9]))
    assert pieces == ["é", "☃", "é"]
    stream.put(torch.tensor([4 + 0xC3]))
    stream.close()
    assert pieces[-1] == generation.BROKEN


@pytest.mark.parametrize("content", [
    b"d\xe2\x82\xacx", b"\xff\xfe\0 d\xe2\x82\xac", b"\xff" * 6 + "é".encode(), b"\xe2\x82\xff\xc3\xa9",
    b"\xe2\x82\xe2\x82\xe2\x82", "\N{REPLACEMENT CHARACTER}" .encode() * 3 + b"a", "😀é☃".encode(), b"\xf0\x9f\x98",
])  # fmt: skip
@pytest.mark.parametrize("first", range(6))
def test_a_stream_writes_the_same_however_it_is_cut(content: bytes, first: int) -> None:
    pieces: list[str] = []
    stream = TextStream(BYTE, pieces.append)
    stream.show([4 + byte for byte in content[:first]])
    for byte in content[first:]:
        stream.show([4 + byte])
    stream.close()
    assert "".join(pieces) == content.decode("utf-8", "replace")


def test_the_names_of_special_tokens_in_a_prompt_are_text(pairs: Prepared) -> None:
    for tokenizer in (BYTE, pairs.tokenizer()):
        assert decode(tokenizer, prompt_ids(tokenizer, b"a[EOS][PAD]b")) == "a[EOS][PAD]b"


def test_lines_end_at_line_ends_alone() -> None:
    assert lines_of("one\N{LINE SEPARATOR}still\x0b\x85one\r\ntwo\n\n") == [
        "one\N{LINE SEPARATOR}still\x0b\x85one",
        "two",
        "",
    ]
    assert lines_of("") == [""]


def test_a_blank_line_stays_blank_and_a_long_one_is_noted(pairs: Prepared) -> None:
    tokenizer, notes = pairs.tokenizer(), list[str]()
    model = translator(tokenizer, positional="rope", max_position_embeddings=6)
    texts = ["a b", "", "  ", "a b c d e f g h"]
    sampling = Sampling(max_new_tokens=8, temperature=3.0, top_k=0)
    found = list(translate(model, tokenizer, texts, sampling, batch_size=3, note=notes.append))
    assert [bool(text) for text in found] == [True, False, False, True]
    assert found[0] == next(translate(model, tokenizer, ["a b"], sampling))
    assert "more than the 6 that the model was trained on" in notes[0]


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    folder = tmp_path_factory.mktemp("pairs")
    write_pairs(folder / "text")
    data = load_data(None, folder / "text", task="translation", text_columns=["en", "xx"])
    return prepare(data, folder / "tokens", max_length=20, vocab_size=280, lowercase=False)


def translator(tokenizer: Any, **changes: Any) -> LFormerForConditionalGeneration:
    torch.manual_seed(0)
    special = {"bos_token_id": 1, "eos_token_id": 2, "is_encoder_decoder": True}
    return LFormerForConditionalGeneration(make_config(vocab_size=len(tokenizer), **special, **changes)).eval()


def test_translations_in_a_batch_are_those_alone(pairs: Prepared) -> None:
    tokenizer = pairs.tokenizer()
    model = translator(tokenizer, positional="rope")
    texts = ["one two", "", "three four one two three", "four"]
    sampling = Sampling(max_new_tokens=6)
    together = list(translate(model, tokenizer, texts, sampling, batch_size=3))
    assert together == [next(translate(model, tokenizer, [text], sampling)) for text in texts]


def test_a_source_that_is_too_long(pairs: Prepared) -> None:
    tokenizer = pairs.tokenizer()
    with pytest.raises(UserError, match=r"a text has \d+ tokens, and this model takes at most 24; translate it in"):
        list(translate(translator(tokenizer), tokenizer, ["one two " * 30], Sampling()))
    model = translator(tokenizer, positional="rope")
    assert len(list(translate(model, tokenizer, ["one two " * 30], Sampling(max_new_tokens=2)))) == 1


def test_bleu_of_an_untrained_model_and_of_a_perfect_one(
    pairs: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("sacrebleu")
    tokenizer = pairs.tokenizer()
    found = bleu(translator(tokenizer), pairs, "test", batch_size=5)
    assert found["sentences"] == 12
    assert found["truncated_references"] == pairs.manifest["splits"]["test"]["target_truncated"]
    assert found.keys() >= {"greedy", "beam_4"}
    for way in ("greedy", "beam_4"):
        assert 0 <= found[way]["bleu"] < 50
        assert found[way]["signature"].startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")
    split = pairs.split("test")
    assert split.target_tokens is not None
    assert split.target_offsets is not None
    targets = {
        tuple(split.tokens[split.offsets[i] : split.offsets[i + 1]].tolist()): split.target_tokens[
            split.target_offsets[i] : split.target_offsets[i + 1]
        ].tolist()
        for i in range(len(split))
    }
    monkeypatch.setattr(
        "lformer.studies.bleu.translate_ids", lambda model, tok, ids, *_: [targets[tuple(row)] for row in ids]
    )
    perfect = bleu(translator(tokenizer), pairs, "test", batch_size=5)
    assert perfect["greedy"]["bleu"] == pytest.approx(100)
    example = perfect["greedy"]["examples"][0]
    assert example["reference"] == example["translation"] == " ".join(example["source"].split()[::-1]).upper()


def test_a_missing_package_is_named(pairs: Prepared, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "sacrebleu.metrics", None)
    with pytest.raises(UserError, match=r"BLEU needs sacrebleu: pip install 'lformer\[translate\]'"):
        bleu(translator(pairs.tokenizer()), pairs)


def test_decoding_leaves_out_special_tokens() -> None:
    assert decode(BYTE, [1, 4 + ord("a"), 2, 0]) == "a"
