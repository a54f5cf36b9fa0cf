"""Hugging Face pipelines with a tokenizer, before and after save_pretrained."""

import pytest
import torch
from transformers import AutoTokenizer, pipeline

from lformer import LFormerForCausalLM, LFormerForMaskedLM, LFormerForSequenceClassification

from . import tiny


def saved(cls, folder, **changes):
    tokenizer = tiny.tokenizer()
    model = tiny.model(
        cls,
        vocab_size=len(tokenizer),
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        **changes,
    )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model, tokenizer


def test_text_classification(tmp_path):
    labels = {0: "bad", 1: "good"}
    model, tokenizer = saved(
        LFormerForSequenceClassification, tmp_path, num_labels=2, id2label=labels, label2id={"bad": 0, "good": 1}
    )
    classify = pipeline("text-classification", model=str(tmp_path), device="cpu")
    assert type(classify.model) is LFormerForSequenceClassification
    answers = classify(list(tiny.SENTENCES), batch_size=3)
    with torch.no_grad():
        logits = model(**tokenizer(list(tiny.SENTENCES), padding=True, return_tensors="pt")).logits
    assert [answer["label"] for answer in answers] == [labels[int(k)] for k in logits.argmax(-1)]
    scores = logits.softmax(-1).max(-1).values.tolist()
    assert [answer["score"] for answer in answers] == pytest.approx(scores, abs=1e-5)


def test_fill_mask(tmp_path):
    saved(LFormerForMaskedLM, tmp_path)
    answers = pipeline("fill-mask", model=str(tmp_path), device="cpu", top_k=3)("what a <mask> film")
    assert len(answers) == 3
    assert all(answer["sequence"].endswith("film") and 0 < answer["score"] < 1 for answer in answers)


def test_text_generation(tmp_path):
    model, tokenizer = saved(LFormerForCausalLM, tmp_path)
    write = pipeline("text-generation", model=str(tmp_path), device="cpu")
    options = {"max_new_tokens": 4, "max_length": None, "do_sample": False}
    one, two = write(["what a", "the film was wonderful and"], batch_size=2, **options)
    inputs = tokenizer("what a", return_tensors="pt")
    expected = model.generate(**inputs, max_new_tokens=4, do_sample=False)
    assert one[0]["generated_text"] == tokenizer.decode(expected[0], skip_special_tokens=True).strip()
    assert two[0]["generated_text"].startswith("the film was wonderful and")


def test_the_tokenizer_survives(tmp_path):
    tokenizer = tiny.tokenizer()
    tokenizer.save_pretrained(tmp_path)
    again = AutoTokenizer.from_pretrained(tmp_path)
    assert again(tiny.SENTENCES[0])["input_ids"] == tokenizer(tiny.SENTENCES[0])["input_ids"]
