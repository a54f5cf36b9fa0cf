from functools import partial

import pytest
import torch

from lformer.kernels.tube_mix import tube_mix_reference
from lformer.kernels.tube_norm import tube_norm, tube_norm_reference

from .cases import DEVICE, DTYPES, assert_parity, draw

# P, B, T, M: one slice, odd and prime sizes, 2^k - 1, slices of several tiles, and tubes too long to unroll.
SIZES = [
    (1, 2, 5, 24),
    (2, 1, 7, 16),
    (3, 2, 5, 13),
    (4, 2, 9, 31),
    (3, 1, 5, 96),
    (4, 1, 9, 65),
    (5, 1, 3, 8),
    (9, 1, 13, 65),
    (16, 1, 7, 7),
]
LONG = 11  # slices


def case(p, b, t, m, dtype, *, learned=False, shared=False, bias=True, identity=False, residual=None):
    rows = 1 if shared else p
    tensors = {
        "s": draw(p, b, t, m, dtype=dtype),
        "x": draw(p, b, t, m, dtype=residual or dtype, seed=1),
        "bias": draw(p, m, dtype=dtype, seed=2) if bias else None,
        "inverse": None if identity else draw(p, p, dtype=dtype, scale=p**-0.5, seed=3),
        "gamma": draw(rows, m, dtype=dtype, seed=4),
        "beta": draw(rows, m, dtype=dtype, seed=5),
        "matrix": None if identity else draw(p, p, dtype=dtype, scale=p**-0.5, seed=6),
    }
    if not learned and not identity:
        for name in ("inverse", "matrix"):
            tensors[name].requires_grad_(False)
    return tensors


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("post", [True, False])
@pytest.mark.parametrize("size", SIZES)
def test_outputs_and_gradients(size, post, dtype):
    options = {"post": post}
    assert_parity(
        partial(tube_norm, backend="triton", **options),
        partial(tube_norm_reference, **options),
        case(*size, dtype),
        dtype,
    )


@pytest.mark.parametrize("p", [3, LONG])
@pytest.mark.parametrize("post", [True, False])
@pytest.mark.parametrize(
    "variant", [{"learned": True}, {"shared": True}, {"bias": False}, {"identity": True}, {"residual": torch.float32}]
)
def test_variants(variant, post, p):
    dtype = torch.float16 if "residual" in variant else torch.float32
    tensors = case(p, 2, 5, 13, dtype, **variant)
    assert_parity(
        partial(tube_norm, backend="triton", post=post), partial(tube_norm_reference, post=post), tensors, dtype
    )


@pytest.mark.parametrize("p", [4, LONG])
def test_without_the_next_transform(p):
    tensors = case(p, 1, 9, 16, torch.float32)
    tensors.pop("matrix")
    options = {"matrix": None, "transformed": False}
    assert_parity(
        partial(tube_norm, backend="triton", **options), partial(tube_norm_reference, **options), tensors, torch.float32
    )


@pytest.mark.parametrize(("p", "t", "m"), [(2, 67, 33), (4, 15, 96), (LONG, 21, 33)])
def test_many_blocks_in_one_program(p, t, m, monkeypatch):
    """The backward pass walks over several blocks of tokens and adds up the gradients of the parameters."""
    from lformer.kernels.gpu import tube_norm as gpu

    monkeypatch.setattr(gpu, "BACKWARD_PROGRAMS", 2)
    tensors = case(p, 3, t, m, torch.float32, learned=True)
    assert_parity(partial(tube_norm, backend="triton"), tube_norm_reference, tensors, torch.float32)


def test_output_dtypes():
    """The residual stream keeps its dtype, and so does the transform domain."""
    y, yh = tube_norm(**case(4, 1, 3, 8, torch.float16, residual=torch.float32), backend="triton")
    assert (y.dtype, yh.dtype) == (torch.float32, torch.float16)


@pytest.mark.parametrize("p", [4, LONG])
@pytest.mark.parametrize("learned", [False, True])
def test_dropout(learned, p):
    """A constant stream shows which elements were kept; the backward pass drops the same ones."""
    n, m, rate = 64, 32, 0.25
    s = torch.ones(p, 1, n, m, device=DEVICE, requires_grad=True)
    x = torch.zeros(p, 1, n, m, device=DEVICE, requires_grad=True)
    eye = torch.eye(p, device=DEVICE, requires_grad=learned)
    gamma, beta = torch.ones(p, m, device=DEVICE), torch.zeros(p, m, device=DEVICE)
    torch.manual_seed(0)
    r, nh = tube_norm(s, x, None, eye, gamma, beta, None, dropout=rate, post=False, backend="triton")
    kept = r.detach() != 0
    assert torch.allclose(r[kept], torch.tensor(1 / (1 - rate), device=DEVICE))
    assert abs(kept.double().mean().item() - (1 - rate)) < 0.02
    for j in range(p):
        assert not any(torch.equal(kept[j], kept[k]) for k in range(j)), "every slice has its own mask"
    (r.sum() + 0 * nh.sum()).backward()
    assert torch.allclose(s.grad, kept / (1 - rate), atol=1e-5)
    assert torch.allclose(x.grad, torch.ones_like(x), atol=1e-5)
    if learned:
        wanted = torch.einsum("jbnm,kbnm->jk", kept / (1 - rate), torch.ones_like(r))
        assert torch.allclose(eye.grad, wanted, rtol=1e-4)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("post", [True, False])
@pytest.mark.parametrize("p", [1, 4, LONG])
def test_gradients_under_dropout(p, post, dtype):
    """With what the same seed keeps, which a residual stream of zeros shows."""
    rate = 0.3

    def drop(**given):
        torch.manual_seed(0)
        return tube_norm(**given, dropout=rate, backend="triton")

    tensors = case(p, 2, 9, 13, dtype, learned=True)
    kept = drop(**{**tensors, "x": torch.zeros_like(tensors["x"])}, post=False)[0] != 0
    assert 0.2 < 1 - kept.double().mean() < 0.4

    def reference(s, x, bias, inverse, **rest):
        y = tube_mix_reference(inverse, s + bias[:, None, None]) * kept / (1 - rate)
        return tube_norm_reference(y, x, None, None, **rest, post=post)

    assert_parity(partial(drop, post=post), reference, tensors, dtype)
