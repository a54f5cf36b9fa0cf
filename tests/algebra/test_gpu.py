"""A core of the laws again on a CUDA device, against the CPU."""

import pytest
import torch

from lformer.algebra import (
    fast,
    get_transform,
    leigh,
    lidentity,
    linverse,
    llu,
    lpinv,
    lproduct,
    lqr,
    lsvd,
    lsvd_energy,
    lsvd_truncated,
    ltranspose,
    matrices,
    multi_rank,
    nuclear_norm,
    prox_nuclear,
    singular_tubes,
    spectral_norm,
)
from lformer.algebra.fast import FAST_FROM

from .cases import FEW_CASES, KINDS, TOLERANCE, assert_close, case_ids, make, randn, tensor_of_kind

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device"),
]
over_few_cases = pytest.mark.parametrize(("name", "p"), FEW_CASES, ids=case_ids(FEW_CASES))


@over_few_cases
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_products_agree_with_the_cpu(name, p, dtype):
    t = make(name, p)
    a, b = randn(2, 3, 2, p, seed=1, dtype=dtype), randn(2, 4, p, seed=2, dtype=dtype)
    for function, inputs in ((lproduct, (a, b)), (ltranspose, (a,)), (lpinv, (a,)), (nuclear_norm, (a,))):
        on_cpu, on_gpu = function(*inputs, t), function(*(x.cuda() for x in inputs), t)
        assert on_gpu.device.type == "cuda"
        assert_close(on_gpu.cpu(), on_cpu, TOLERANCE[dtype])
    one = lidentity(2, p, t, dtype=dtype, device="cuda")
    assert one.device.type == "cuda"
    assert_close(one.cpu(), lidentity(2, p, t, dtype=dtype))


@over_few_cases
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(3, 3), (4, 2), (2, 4), (40, 33)])
def test_decompositions(name, p, kind, shape):
    """cuSOLVER has algorithms of its own; it could differ where slices vanish, or are real among complex ones."""
    t = make(name, p)
    a = tensor_of_kind(kind, t, *shape, p).cuda()
    for full in (False, True):
        u, s, v = lsvd(a, t, full_matrices=full)
        assert_close(lproduct(lproduct(u, s, t), ltranspose(v, t), t), a.to(u.dtype), 1e-10)
        for q in (u, v):
            one = lidentity(q.shape[1], p, t, dtype=q.dtype)
            assert_close(lproduct(ltranspose(q, t), q, t).cpu(), one, 1e-10)
    q, r = lqr(a, t)
    assert_close(lproduct(q, r, t), a.to(q.dtype), 1e-10)
    assert_close(lproduct(ltranspose(q, t), q, t).cpu(), lidentity(q.shape[1], p, t, dtype=q.dtype), 1e-10)
    permutation, lower, upper = llu(a, t)
    assert_close(lproduct(lproduct(permutation, lower, t), upper, t), a.to(q.dtype), 1e-10)
    square = lproduct(a, ltranspose(a, t), t)
    w, v = leigh(square, t)
    assert_close(lproduct(lproduct(v, w, t), ltranspose(v, t), t), square.to(v.dtype), 1e-10)
    assert_close(lproduct(ltranspose(v, t), v, t).cpu(), lidentity(v.shape[1], p, t, dtype=v.dtype), 1e-10)


@over_few_cases
def test_values_agree_with_the_cpu(name, p):
    t = make(name, p)
    a = randn(2, 4, 3, p)
    assert_close(singular_tubes(a.cuda(), t).cpu(), singular_tubes(a, t))
    assert_close(spectral_norm(a.cuda(), t).cpu(), spectral_norm(a, t))
    assert_close(prox_nuclear(a.cuda(), 0.5, t).cpu(), prox_nuclear(a, 0.5, t))
    assert multi_rank(a.cuda(), t).tolist() == multi_rank(a, t).tolist()
    square = randn(3, 3, p)
    assert_close(linverse(square.cuda(), t).cpu(), linverse(square, t), 1e-9)
    for truncate in (lambda x: lsvd_truncated(x, 1, t), lambda x: lsvd_energy(x, 0.8, t)):
        on_cpu, on_gpu = (
            lproduct(lproduct(u, s, t), ltranspose(v, t), t) for u, s, v in (truncate(a), truncate(a.cuda()))
        )
        assert_close(on_gpu.cpu(), on_cpu, 1e-10)


@over_few_cases
def test_gradients_agree_with_the_cpu(name, p):
    t = make(name, p)
    results = []
    for device in ("cpu", "cuda"):
        x = randn(3, 2, p).to(device).requires_grad_()
        loss = lproduct(ltranspose(x, t), x, t).abs().square().sum() + prox_nuclear(x, 0.5, t).abs().square().sum()
        results.append(torch.autograd.grad(loss + nuclear_norm(x, t), x)[0])
    assert_close(results[1].cpu(), results[0], 1e-10)


@pytest.mark.parametrize("name", ["dct", "dst", "hartley", "hadamard", "dft", "fft"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.complex64])
def test_fast_paths_agree_with_the_cpu(name, dtype, monkeypatch):
    monkeypatch.setitem(FAST_FROM, name, 1)
    transform = get_transform(name, 1024)
    assert transform.fast_pair() is not None
    x = randn(3, 1024, dtype=dtype)
    assert_close(transform.forward(x.cuda()).cpu(), transform.forward(x), TOLERANCE[dtype])
    assert_close(transform.inverse(x.cuda()).cpu(), transform.inverse(x), TOLERANCE[dtype])


def test_fast_dct_is_its_matrix():
    x = randn(3, 1000)
    assert_close(fast.dct(x.cuda()).cpu(), x @ matrices.dct_matrix(1000).T, 1e-12)


def test_a_matrix_on_the_gpu_works_on_both_devices():
    z = make("real", 4).matrix.cuda()
    a, b = randn(2, 2, 4, seed=1), randn(2, 2, 4, seed=2)
    expected = lproduct(a, b, z.cpu())
    assert_close(lproduct(a.cuda(), b.cuda(), z).cpu(), expected)
    assert_close(lproduct(a, b, z), expected)


def test_the_public_matrix_follows_the_device_asked_for():
    assert get_transform("dft", 4, device="cuda").matrix.device.type == "cuda"
