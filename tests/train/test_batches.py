"""Batches are a function of seed and epoch, hold every example once, and padding changes nothing."""

from pathlib import Path

import numpy as np
import pytest

from lformer.data import Prepared, load_data, prepare
from lformer.train import Recipe, make_task
from lformer.train.batches import epoch_batches, evaluation_batches, share
from lformer.train.metrics import accuracy, confusion_matrix, macro_f1
from lformer.train.tasks import IGNORED

LENGTHS = np.random.default_rng(0).integers(1, 100, size=1003)


@pytest.mark.parametrize("bucket", [False, True])
def test_every_example_once_in_an_order_of_seed_and_epoch(bucket: bool) -> None:
    first, again, later, other = (
        epoch_batches(LENGTHS, 16, seed=seed, epoch=epoch, bucket=bucket)
        for seed, epoch in ((7, 0), (7, 0), (7, 1), (8, 0))
    )
    assert sorted(np.concatenate(first).tolist()) == list(range(len(LENGTHS)))
    assert all((a == b).all() for a, b in zip(first, again, strict=True))
    assert np.concatenate(first).tolist() != np.concatenate(later).tolist() != np.concatenate(other).tolist()
    assert {len(batch) for batch in first} == {16, 1003 % 16}


def test_buckets_save_padding() -> None:
    def padding(batches: list[np.ndarray]) -> int:
        return sum(int(LENGTHS[batch].max() * len(batch) - LENGTHS[batch].sum()) for batch in batches)

    plain, bucketed = (epoch_batches(LENGTHS, 16, seed=1, epoch=0, bucket=bucket) for bucket in (False, True))
    assert padding(bucketed) < 0.2 * padding(plain)
    assert padding(evaluation_batches(LENGTHS, 16)) <= padding(bucketed)


def test_processes_share_a_batch_without_overlap() -> None:
    rows = np.arange(11)
    parts = [share(rows, process, 3) for process in range(3)]
    assert sorted(np.concatenate(parts).tolist()) == rows.tolist()


def test_scores_are_those_of_scikit_learn() -> None:
    peers = pytest.importorskip("sklearn.metrics", reason="no scikit-learn: pip install -e '.[dev]'")
    generator = np.random.default_rng(1)
    labels, predictions = generator.integers(0, 5, size=(2, 400))
    assert accuracy(labels, predictions) == (labels == predictions).mean()
    assert macro_f1(labels, predictions, 5) == pytest.approx(peers.f1_score(labels, predictions, average="macro"))
    assert (confusion_matrix(labels, predictions, 5) == peers.confusion_matrix(labels, predictions)).all()


def test_a_batch_holds_the_tokens_and_a_mask(reviews: Prepared) -> None:
    task = make_task(None, reviews, Recipe())
    split = reviews.split("train")
    batch = task.batch(split, np.array([3, 0]), np.random.default_rng(0))
    for row, example in enumerate((3, 0)):
        tokens = split.tokens[split.offsets[example] : split.offsets[example + 1]]
        assert batch["input_ids"][row, : len(tokens)].tolist() == tokens.tolist()
        assert batch["attention_mask"][row].sum() == len(tokens)
    assert batch["input_ids"].shape[1] % 8 == 0
    assert task.weight(batch) == 2


def test_masking_hides_the_chosen_share_and_asks_for_it(reviews: Prepared) -> None:
    task = make_task("masked-lm", reviews, Recipe(mask_probability=0.3))
    split = reviews.split("train")
    rows = np.arange(len(split))
    batch = task.batch(split, rows, np.random.default_rng(0))
    plain = make_task(None, reviews, Recipe()).batch(split, rows, np.random.default_rng(0))
    asked = batch["labels"] != IGNORED
    assert (batch["labels"][asked] == plain["input_ids"][asked]).all()
    assert (batch["input_ids"][~asked] == plain["input_ids"][~asked]).all()
    assert not asked[plain["attention_mask"] == 0].any()
    assert asked.sum() / plain["attention_mask"].sum() == pytest.approx(0.3, abs=0.05)
    hidden = (batch["input_ids"] == task.tokenizer.mask_token_id) & asked
    assert hidden.sum() / asked.sum() == pytest.approx(0.8, abs=0.08)


def test_a_causal_sequence_predicts_the_next_token(reviews: Prepared) -> None:
    task = make_task("causal-lm", reviews, Recipe(sequence_length=10))
    split = reviews.split("train")
    batch = task.batch(split, np.array([2]), np.random.default_rng(0))
    assert batch["input_ids"][0].tolist() == split.tokens[20:30].tolist()
    assert batch["labels"][0].tolist() == split.tokens[21:31].tolist()
    assert len(task.lengths(split)) == (len(split.tokens) - 1) // 10


def test_translation_batches_start_and_end(tmp_path: Path) -> None:
    for language, lines in (
        ("en", ["a dog runs", "a cat", "two men"]),
        ("de", ["ein Hund rennt", "eine Katze", "zwei"]),
    ):
        (tmp_path / f"train.{language}").write_text("\n".join(lines) + "\n")
    data = load_data(None, tmp_path, task="translation", text_columns=["en", "de"])
    prepared = prepare(data, tmp_path / "tokens", max_length=16, vocab_size=300)
    task = make_task(None, prepared, Recipe())
    split = prepared.split("train")
    batch = task.batch(split, np.array([0, 2]), np.random.default_rng(0))
    bos, eos, pad = (getattr(task.tokenizer, f"{name}_token_id") for name in ("bos", "eos", "pad"))
    for row, example in enumerate((0, 2)):
        target = split.target_tokens[split.target_offsets[example] : split.target_offsets[example + 1]].tolist()
        size = len(target) + 1
        assert batch["decoder_input_ids"][row, :size].tolist() == [bos, *target]
        assert batch["labels"][row, :size].tolist() == [*target, eos]
        assert set(batch["labels"][row, size:].tolist()) <= {IGNORED}
        assert set(batch["decoder_input_ids"][row, size:].tolist()) <= {pad}
    assert "decoder_attention_mask" not in batch  # padding is on the right, where a causal decoder does not look
