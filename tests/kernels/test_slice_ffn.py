from functools import partial

import pytest
import torch

from lformer.kernels.slice_ffn import slice_ffn, slice_ffn_reference

from .cases import DTYPES, assert_parity, draw, results

# P, B, T, M, F. The last two have slices of three tiles, and rows of F that are not aligned to 16 bytes.
SIZES = [
    (1, 1, 5, 16, 64),
    (2, 2, 7, 17, 31),
    (3, 1, 37, 13, 50),
    (4, 1, 70, 48, 80),
    (3, 1, 9, 65, 50),
    (2, 1, 9, 96, 50),
]
WAYS = {  # each way of computing it, whatever the sizes would choose
    "fused": {},
    "recomputed": {"FUSED": 0, "PART_ROWS": 3},
    "recomputed, many rows": {"FUSED": 0, "MANY_ROWS": 0},
    "kept": {"RECOMPUTED": 0, "FUSED": 0, "PART_ROWS": 3},
}


def case(p, b, t, m, f, dtype):
    return {
        "x": draw(p, b, t, m, dtype=dtype),
        "w1": draw(p, f, m, dtype=dtype, scale=m**-0.5, seed=1),
        "b1": draw(p, f, dtype=dtype, seed=2),
        "w2": draw(p, m, f, dtype=dtype, scale=f**-0.5, seed=3),
        "b2": draw(p, m, dtype=dtype, seed=4),
    }


# Every size in every way, the activations in turn.
RUNS = [(size, way, ("relu", "gelu")[(i + j) % 2]) for i, size in enumerate(SIZES) for j, way in enumerate(WAYS)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("size", "way", "activation"), RUNS)
def test_outputs_and_gradients(size, way, activation, dtype, monkeypatch):
    from lformer.kernels.gpu import slice_ffn_op

    for name, value in WAYS[way].items():
        monkeypatch.setattr(slice_ffn_op, name, value)
    options = {"activation": activation}
    assert_parity(
        partial(slice_ffn, backend="triton", **options),
        partial(slice_ffn_reference, **options),
        case(*size, dtype),
        dtype,
    )


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("p", [2, 3, 4])
def test_interleaved_hidden_features(p, activation):
    options = {"activation": activation, "interleaved": True}
    tensors = case(p, 2, 9, 16, 8 * p, torch.float32)
    assert_parity(
        partial(slice_ffn, backend="triton", **options), partial(slice_ffn_reference, **options), tensors, torch.float32
    )


@pytest.mark.parametrize(("interleaved", "activation"), [(True, "relu"), (False, "gelu")])
@pytest.mark.parametrize("m", [16, 72, 264])
@pytest.mark.parametrize("dtype", DTYPES)
def test_no_rows(dtype, m, activation, interleaved):
    """Each width takes another way."""
    call = partial(slice_ffn, activation=activation, interleaved=interleaved, backend="triton")
    found = results(call, case(2, 1, 0, m, 24, dtype))
    assert found["output 0"].shape == (2, 1, 0, m)
    assert not any(g.any() for g in found.values())
