"""Post-hoc compression: exact where it should be, best in its class, counted right, chosen without the test split."""

import copy
import doctest
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from lformer import LFormerConfig, LFormerForSequenceClassification
from lformer.algebra import get_transform, lproduct, lsvd_energy, lsvd_truncated, ltranspose, multi_rank
from lformer.data import Prepared, load_data, prepare
from lformer.settings import UserError
from lformer.studies.posthoc import (
    Stack,
    compression,
    part_names,
    posthoc_sweep,
    reduce_rank_,
    sweep,
    truncate_energy_,
    truncate_stack_,
)
from lformer.studies.posthoc.compression import stack_sites, weight_at
from lformer.train import Recipe, train
from tests.train.conftest import write_reviews

SIZES = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 32}
PARTS = ["query", "key", "value", "output", "inner", "outer"]
TRANSFORMS = ["dct", "dft", "identity", "hartley"]
# Few levels, so that a whole sweep takes seconds.
QUICK: dict[str, Any] = {"ranks": (0.05, 0.25, 0.5), "energies": (0.5, 0.9), "quiet": True}


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def dense(**changes: Any) -> LFormerForSequenceClassification:
    torch.manual_seed(0)
    config = LFormerConfig(**{"vocab_size": 20, "tube_length": 1, **SIZES, **changes})
    return LFormerForSequenceClassification(config).eval()


def weights(model: LFormerForSequenceClassification, part: str) -> Tensor:
    return torch.stack([weight_at(model, i, part).clone() for i in range(len(model.model.layers))], dim=-1)


def logits(model: LFormerForSequenceClassification) -> Tensor:
    with torch.no_grad():
        return model(input_ids=torch.arange(1, 13).view(2, 6)).logits


def restore(u: Tensor, s: Tensor, v: Tensor, transform: str) -> Tensor:
    return lproduct(lproduct(u, s, transform), ltranspose(v, transform), transform)


def test_parts_are_the_weights_that_their_names_say() -> None:
    model = dense(paper_counts=True)
    layer: Any = model.model.layers[1]
    assert part_names(dense()) == PARTS
    names = part_names(model)
    assert len(names) == 9
    qkv = torch.cat([weight_at(model, 1, part) for part in ("query", "key", "value")])
    assert torch.equal(qkv, layer.attention.query_key_value.weight[0])
    assert torch.equal(weight_at(model, 1, "value again"), layer.attention.again[2].weight[0])
    assert torch.equal(weight_at(model, 1, "output"), layer.attention.output.weight[0])
    assert torch.equal(weight_at(model, 1, "inner"), layer.feed_forward.inner.weight[0])
    assert torch.equal(weight_at(model, 1, "outer"), layer.feed_forward.outer.weight[0])
    counted = sum(weight_at(model, i, part).numel() for i in range(3) for part in names)
    matrices = [p for name, p in model.named_parameters() if "layers." in name and p.ndim == 3]
    assert counted == sum(p.numel() for p in matrices)


@pytest.mark.parametrize("part", PARTS)
def test_the_full_rank_changes_nothing(part: str) -> None:
    model = dense()
    before = logits(model)
    assert reduce_rank_(model, 1, part, 16) == 0
    torch.testing.assert_close(logits(model), before, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("rank", [1, 5, 13])
def test_rank_reduction_is_the_best_approximation_and_touches_nothing_else(part: str, rank: int) -> None:
    model = dense()
    before = copy.deepcopy(model)
    reduce_rank_(model, 1, part, rank)
    old, new = weight_at(before, 1, part), weight_at(model, 1, part)
    values = torch.linalg.svdvals(old.double())
    error = torch.linalg.matrix_norm((old - new).double())
    torch.testing.assert_close(error, values[rank:].square().sum().sqrt(), rtol=1e-4, atol=1e-5)
    assert torch.linalg.matrix_rank(new, rtol=1e-4) == rank
    weight_at(model, 1, part).copy_(old)
    for (name, a), b in zip(model.named_parameters(), before.parameters(), strict=True):
        assert torch.equal(a, b), name


def test_parameters_saved_are_those_of_the_matrix_less_those_of_the_factors() -> None:
    model = dense()
    assert reduce_rank_(model, 0, "query", 3) == 16 * 16 - 3 * 32
    assert reduce_rank_(model, 0, "inner", 3) == 32 * 16 - 3 * 48
    assert reduce_rank_(model, 0, "outer", 10) == 32 * 16 - 10 * 48
    assert reduce_rank_(model, 0, "outer", 11) == 0, "11 * 48 > 32 * 16: the factors are larger than the matrix"
    assert reduce_rank_(model, 0, "value", 8) == 0
    assert truncate_stack_(model, "key", 3) == 3 * (16 * 16 - 3 * 32)
    assert truncate_stack_(model, "attention", 3, layer=1) == 4 * (16 * 16 - 3 * 32)


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize(("part", "layer"), [("query", None), ("outer", None), ("attention", 2)])
def test_the_stack_of_full_rank_is_the_stack(part: str, layer: int | None, transform: str) -> None:
    model = dense()
    before = logits(model)
    assert truncate_stack_(model, part, 16, transform, layer=layer) == 0
    torch.testing.assert_close(logits(model), before, rtol=1e-5, atol=1e-5)
    assert truncate_energy_(model, part, 1.0, transform, layer=layer) == 0
    torch.testing.assert_close(logits(model), before, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("part", PARTS)
def test_a_truncated_stack_is_the_truncated_lsvd(part: str, transform: str) -> None:
    model = dense()
    before = weights(model, part)
    truncate_stack_(model, part, 4, transform)
    expected = restore(*lsvd_truncated(before, 4, transform), transform)
    torch.testing.assert_close(weights(model, part), expected, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(expected, before, atol=1e-2)


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("fraction", [0.3, 0.8, 0.97])
def test_a_stack_cut_by_energy_is_lsvd_energy_and_its_multi_rank_is_counted(fraction: float, transform: str) -> None:
    model = dense()
    with torch.no_grad():  # layers that differ in size, so that slices differ in rank
        for layer in range(3):
            weight_at(model, layer, "inner").mul_(1 + 3 * layer)
    before = weights(model, "inner")
    saved = truncate_energy_(model, "inner", fraction, transform)
    expected = restore(*lsvd_energy(before, fraction, transform), transform)
    torch.testing.assert_close(weights(model, "inner"), expected, rtol=1e-4, atol=1e-4)
    ranks = multi_rank(expected, transform, rtol=1e-4)
    assert saved == 3 * 32 * 16 - sum(min(int(rank) * 48, 32 * 16) for rank in ranks)
    if transform == "identity":
        assert len(set(ranks.tolist())) > 1


def test_the_attention_of_a_layer_is_a_stack_of_its_four_matrices() -> None:
    model = dense()
    before = torch.stack([weight_at(model, 1, part).clone() for part in PARTS[:4]], dim=-1)
    other = weights(model, "query")[..., 0]
    truncate_stack_(model, "attention", 5, "dct", layer=1)
    after = torch.stack([weight_at(model, 1, part) for part in PARTS[:4]], dim=-1)
    expected = restore(*lsvd_truncated(before, 5, "dct"), "dct")
    torch.testing.assert_close(after, expected, rtol=1e-4, atol=1e-5)
    assert torch.equal(weight_at(model, 0, "query"), other)


def test_the_identity_transform_is_rank_reduction_of_every_slice() -> None:
    stacked, single = dense(), dense()
    saved = truncate_stack_(stacked, "inner", 3, "identity")
    assert saved == sum(reduce_rank_(single, layer, "inner", 3) for layer in range(3))
    torch.testing.assert_close(weights(stacked, "inner"), weights(single, "inner"), rtol=1e-4, atol=1e-5)


def test_a_transform_that_is_not_orthogonal_keeps_the_tubes_that_the_algebra_keeps() -> None:
    model = dense()
    matrix = torch.tensor([[1.0, 0.5, 0.0], [0.0, 1.0, 2.0], [3.0, 0.0, 1.0]], dtype=torch.float64)
    transform = get_transform(matrix)
    before = weights(model, "outer")
    truncate_stack_(model, "outer", 4, transform)
    u, s, v = lsvd_truncated(before, 4, transform)
    expected = lproduct(lproduct(u, s, transform), ltranspose(v, transform), transform)
    torch.testing.assert_close(weights(model, "outer"), expected, rtol=1e-3, atol=1e-4)


def test_a_stack_can_be_put_back() -> None:
    model = dense()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    stack = Stack.of(model, stack_sites(model, "value"))
    stack.put_(model, stack.keep_tubes(2))
    assert any(not torch.equal(value, before[name]) for name, value in model.state_dict().items())
    stack.put_(model, None)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda model: reduce_rank_(model, 3, "query", 2), "layers 0 to 2"),
        (lambda model: reduce_rank_(model, -1, "query", 2), "layers 0 to 2"),
        (lambda model: reduce_rank_(model, 0, "qeury", 2), "no part 'qeury'"),
        (lambda model: reduce_rank_(model, 0, "query", 0), "from 1 to 16"),
        (lambda model: truncate_stack_(model, "query", 17), "from 1 to 16"),
        (lambda model: truncate_stack_(model, "query", 2, layer=1), "over all layers"),
        (lambda model: truncate_stack_(model, "attention", 2), "of one layer"),
        (lambda model: truncate_energy_(model, "query", 0.0), "above 0"),
    ],
)
def test_mistakes_are_explained(wrong: Callable[[LFormerForSequenceClassification], int], message: str) -> None:
    with pytest.raises(UserError, match=message):
        wrong(dense())


def test_the_example_in_the_docstring() -> None:
    result = doctest.testmod(compression)
    assert (result.attempted, result.failed) == (4, 0)


def test_a_tensor_model_is_refused() -> None:
    model = dense(tube_length=4, num_attention_heads=4)
    for wrong in (lambda: reduce_rank_(model, 0, "query", 2), lambda: truncate_stack_(model, "query", 2)):
        with pytest.raises(UserError, match="tube_length=4"):
            wrong()


@pytest.fixture(scope="module")
def reviews(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    folder = tmp_path_factory.mktemp("posthoc")
    write_reviews(folder / "text")
    data = load_data(None, folder / "text", validation_fraction=0.2)
    return prepare(data, folder / "tokens", max_length=16, vocab_size=300)


def trained(prepared: Prepared, out: Path, **changes: Any) -> Path:
    recipe = Recipe(epochs=2, batch_size=16, learning_rate=3e-3)
    model = {"tube_length": 1, **SIZES, "num_hidden_layers": 2, **changes}
    train(prepared, out, model=model, recipe=recipe, quiet=True)
    return out


@pytest.fixture(scope="module")
def run(reviews: Prepared, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(reviews, tmp_path_factory.mktemp("runs") / "std")


@pytest.fixture(scope="module")
def points(run: Path, reviews: Prepared) -> list[dict[str, Any]]:
    return posthoc_sweep(run, reviews, **QUICK)


def test_the_sweep_starts_with_the_model_as_trained(points: list[dict[str, Any]], run: Path) -> None:
    result = json.loads((run / "result.json").read_text())
    first = points[0]
    assert first["method"] == "none"
    assert first["layer_parameters"] == result["layer_parameters"]
    assert first["test_accuracy"] == result["test"]["accuracy"]
    assert first["macro_f1"] == result["test"]["macro_f1"]
    assert first["validation_accuracy"] == result["validation"]["accuracy"]
    assert json.loads(json.dumps(points)) == points


def test_every_point_counts_what_its_ranks_say(points: list[dict[str, Any]]) -> None:
    whole = points[0]["layer_parameters"]
    for point in points[1:]:
        saved = 0
        for part, ranks in zip(point["parts"], point["rank"], strict=True):
            kind = part.rsplit(".", 1)[1]
            n, m = (16, 32) if kind in ("inner", "outer") else (16, 16)
            listed = ranks if isinstance(ranks, list) else [ranks]
            assert len(listed) == (1 if point["method"] == "rank reduction" else 4 if kind == "attention" else 2)
            saved += sum(n * m - min(n * m, rank * (n + m)) for rank in listed)
        assert point["layer_parameters"] == whole - saved
        assert point["share"] == point["layer_parameters"] / whole


def test_the_frontier_is_the_best_by_validation_for_each_method_and_budget(points: list[dict[str, Any]]) -> None:
    for method in ("rank reduction", "stacked L-SVD"):
        own = [point for point in points if point["method"] == method]
        assert {"single", "uniform", "greedy"} == {point["search"] for point in own}
        for budget in sweep.BUDGETS:
            chosen = [point for point in own if budget in point["budgets"]]
            assert len(chosen) == 1, (method, budget)
            assert chosen[0]["share"] <= budget
            best = max(point["validation_accuracy"] for point in own if point["share"] <= budget)
            assert chosen[0]["validation_accuracy"] == best
    for point in points[1:]:
        scored = point["test_accuracy"] is not None
        assert scored == (point["macro_f1"] is not None) == bool(point["budgets"])


def test_a_chosen_point_can_be_made_again_by_hand(points: list[dict[str, Any]], run: Path, reviews: Prepared) -> None:
    chosen = next(p for p in points if p["method"] == "rank reduction" and 0.5 in p["budgets"])
    model = LFormerForSequenceClassification.from_pretrained(run / "model").eval()
    saved = 0
    for part, rank in zip(chosen["parts"], chosen["rank"], strict=True):
        _, layer, kind = part.split(".")
        saved += reduce_rank_(model, int(layer), kind, rank)
    assert saved == points[0]["layer_parameters"] - chosen["layer_parameters"]
    split = reviews.split("test")
    right = 0
    for i in range(len(split)):
        ids = torch.tensor(np.asarray(split.tokens[split.offsets[i] : split.offsets[i + 1]], dtype=np.int64))[None]
        with torch.no_grad():
            right += int(model(input_ids=ids).logits.argmax()) == int(split.labels[i])
    assert right / len(split) == pytest.approx(chosen["test_accuracy"], abs=1.01 / len(split))


def test_the_choice_never_reads_the_test_split(
    points: list[dict[str, Any]], run: Path, reviews: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other test labels change the test scores and nothing else, and the split is opened after the last choice."""
    flipped = reviews.split("test")
    flipped = type(flipped)(flipped.tokens, flipped.offsets, 1 - flipped.labels)
    read: list[str] = []
    whole_split, whole_frontier = Prepared.split, sweep._frontier

    def split(self: Prepared, name: str) -> Any:
        read.append(name)
        return flipped if name == "test" else whole_split(self, name)

    def frontier(*arguments: Any) -> Any:
        assert "test" not in read
        read.append("chosen")
        return whole_frontier(*arguments)

    monkeypatch.setattr(Prepared, "split", split)
    monkeypatch.setattr(sweep, "_frontier", frontier)
    others = posthoc_sweep(run, reviews, **QUICK)
    assert read == ["validation", "chosen", "test"]
    for before, after in zip(points, others, strict=True):
        assert before.keys() == after.keys()
        changed = {key for key in before if before[key] != after[key]}
        assert changed <= {"test_accuracy", "macro_f1", "test_loss"}
        if before["test_accuracy"] is not None:
            assert after["test_accuracy"] == pytest.approx(1 - before["test_accuracy"])


def test_the_sweep_refuses_what_it_cannot_do_honestly(run: Path, reviews: Prepared, tmp_path: Path) -> None:
    write_reviews(tmp_path / "text")
    without = prepare(load_data(None, tmp_path / "text"), tmp_path / "tokens", max_length=16, vocab_size=300)
    with pytest.raises(UserError, match="other data"):
        posthoc_sweep(run, without, **QUICK)
    with pytest.raises(UserError, match=r"no validation split.*validation_fraction"):
        posthoc_sweep(trained(without, tmp_path / "no-validation"), without, **QUICK)
    tensor = trained(reviews, tmp_path / "t4", tube_length=4, num_attention_heads=4)
    with pytest.raises(UserError, match="tube_length=4"):
        posthoc_sweep(tensor, reviews, **QUICK)
    with pytest.raises(UserError, match="not the folder of a run"):
        posthoc_sweep(tmp_path / "nothing", reviews, **QUICK)


def test_combinations_take_the_least_damage_per_parameter_first() -> None:
    """Two stacks whose damages are known: the steps of both in the order of their slopes, along the hulls."""

    def cut(saved: int) -> Any:
        nothing: Any = None
        return sweep.Cut(nothing, nothing, (saved,), saved, ("rank", 0.0))

    a = [cut(saved) for saved in (30, 20, 10, 0)]
    b = [cut(40)]
    # a: 10 for 1, 20 for 10 (above the line from 10 to 30), 30 for 5; b: 40 for 6. Slopes 0.1, 0.2; 0.15.
    found = sweep._combinations([a, b], [[5.0, 10.0, 1.0, -1.0], [6.0]], 100, (1.0, 0.9, 0.5))
    assert [[c.saved for c in cuts] for cuts in found] == [[10], [10, 40], [30, 40]]
