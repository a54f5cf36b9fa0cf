"""The comparison on a GPU: everything is captured in CUDA graphs, and memory is measured."""

from typing import Any

import pytest
import torch

from lformer.studies.bench import candidates as candidates_module
from lformer.studies.bench.command import BenchOptions, make_request
from lformer.studies.bench.compare import compare

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
MEASURES = ("forward", "training")


def rows_of(kind: str, **options: Any) -> list[dict[str, Any]]:
    defaults: dict[str, Any] = {"shapes": "8x64x128", "quick": True, "dense_modes": "eager", "compile_tensor": False}
    request = make_request(kind, BenchOptions(**{**defaults, **options}))
    (found,) = compare(request, None, lambda found: None)["shapes"]
    return found["rows"]


@pytest.mark.parametrize("kind", ["layer", "model"])
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_a_tiny_shape_is_captured(kind: str, dropout: float) -> None:
    rows = rows_of(kind, backends="torch,auto", dropout=dropout, layers=2 if kind == "model" else 1)
    for row in rows:
        for measure in MEASURES:
            assert row[measure]["seconds"] is not None, row
            assert row[measure]["captured"] == (row is not rows[-3]), row  # torch.nn stands there twice
        assert row["peak_bytes"] > 2 * 2 * row["parameters"]  # weights and gradients in bfloat16, and more


@pytest.mark.filterwarnings("ignore::UserWarning")  # the compiler's hints differ from card to card
def test_compiled_and_captured() -> None:
    rows = rows_of("layer", dense_modes="default", compile_tensor=True, backends="torch", peers=False)
    assert [row["mode"] for row in rows] == ["default", "default"]
    assert all(row[measure]["captured"] for row in rows for measure in MEASURES)


def test_what_cannot_be_captured_is_timed_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    real = candidates_module._tensor

    def synchronising(*arguments: Any) -> Any:
        built = real(*arguments)

        def call(x: torch.Tensor) -> torch.Tensor:
            torch.cuda.synchronize()  # not allowed while a graph is captured
            return built.call(x)

        return candidates_module.Built(built.module, call, built.input_shape, built.parameters)

    monkeypatch.setattr(candidates_module, "_tensor", synchronising)
    dense, tensor = rows_of("layer", backends="torch", peers=False)
    for measure in MEASURES:
        assert dense[measure]["captured"]
        assert not tensor[measure]["captured"]
        assert tensor[measure]["seconds"] is not None
    assert any("not captured" in note for note in tensor["notes"])
