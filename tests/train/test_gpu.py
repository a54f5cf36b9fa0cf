"""Training on a GPU, in the mixed precision that is the default there."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from lformer.data import Prepared
from lformer.train import train
from tests.train.conftest import MODEL, RECIPE

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.mark.parametrize("compile", [False, True])
def test_a_classifier_learns_in_bf16(reviews: Prepared, tmp_path: Path, compile: bool) -> None:
    recipe = replace(RECIPE, epochs=8, learning_rate=1e-2, compile=compile)
    result = train(reviews, tmp_path / "run", model=MODEL, recipe=recipe, quiet=True)
    assert result["test"]["accuracy"] > 0.9
    assert result["peak_memory_bytes"] > 0
