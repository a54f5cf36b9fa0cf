"""The fast algorithms against the matrices they stand for."""

import pytest
import torch

from lformer.algebra import fast, get_transform, lidentity, lproduct, lsvd_energy, ltranspose, matrices, nuclear_norm
from lformer.algebra.fast import FAST_FROM

from .cases import assert_close, randn, wide

PAIRS = {
    "dct": (fast.dct, fast.idct, matrices.dct_matrix),
    "dst": (fast.dst, fast.idst, matrices.dst_matrix),
    "hartley": (fast.hartley, fast.hartley, matrices.hartley_matrix),
    "hadamard": (fast.hadamard, fast.hadamard, matrices.hadamard_matrix),
}
SIZES = (1, 2, 3, 16, 63, 64, 127, 512, 1000)
CASES = [(name, p) for name in PAIRS for p in SIZES if name != "hadamard" or p & (p - 1) == 0]


@pytest.mark.parametrize(("name", "p"), CASES)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_fast_is_the_matrix(name, p, dtype, tolerance):
    forward, inverse, matrix = PAIRS[name]
    x = randn(2, 3, p, dtype=dtype)
    z = matrix(p)
    assert_close(forward(x), (wide(x) @ z.T).to(dtype), tolerance)
    assert_close(inverse(x), (wide(x) @ z).to(dtype), tolerance)
    assert_close(inverse(forward(x)), x, tolerance)


def test_fast_parity_can_fail():
    with pytest.raises(AssertionError, match="differs by"):
        assert_close(fast.dct(randn(2, 16)), randn(2, 16) @ matrices.dst_matrix(16).T)


NAMES = ("dct", "dst", "hartley", "hadamard", "dft", "fft")
LARGE_CASES = [(name, p) for name in NAMES for p in ((64, 512) if name == "hadamard" else (64, 65, 127, 512))]
over_large = pytest.mark.parametrize(("name", "p"), LARGE_CASES)
MATRICES = {**{name: PAIRS[name][2] for name in PAIRS}, "dft": matrices.dft_matrix, "fft": matrices.fft_matrix}
DTYPES = {
    torch.float64: 1e-12,
    torch.float32: 1e-5,
    torch.bfloat16: 1e-2,
    torch.float16: 2e-3,
    torch.complex64: 1e-5,
    torch.complex128: 1e-12,
}


def inverse_of(name, z):
    return z.mH / (len(z) if name == "fft" else 1)


@pytest.fixture
def always_fast(monkeypatch):
    """Whatever the crossover measured on this or that machine."""
    for name in NAMES:
        monkeypatch.setitem(FAST_FROM, name, 1)


def test_the_fast_path_begins_at_the_crossover():
    assert set(FAST_FROM) == set(NAMES)
    for name, start in FAST_FROM.items():
        assert get_transform(name, start // 2).fast_pair() is None
        assert get_transform(name, start).fast_pair() is not None
        a, b = randn(1, 2, start, seed=1, dtype=torch.float32), randn(2, 1, start, seed=2, dtype=torch.float32)
        assert_close(lproduct(a, lidentity(2, start, name), name), a, 1e-5)
        assert_close(lproduct(a, b, name), lproduct(a.double(), b.double(), name), 1e-5, same_dtype=False)
    assert get_transform("haar", 4096).fast_pair() is None


@over_large
@pytest.mark.parametrize("dtype", DTYPES)
def test_transforms_in_every_dtype(name, p, dtype, always_fast):
    transform = get_transform(name, p)
    assert transform.fast_pair() is not None
    z = MATRICES[name](p)
    x = randn(2, p, dtype=dtype)
    z = z.to(torch.promote_types(wide(x).dtype, z.dtype))
    tall = wide(x).to(z.dtype)
    forward, inverse = transform.forward(x), transform.inverse(x)
    if not transform.is_complex:
        assert forward.dtype == inverse.dtype == dtype
    assert_close(forward, tall @ z.T, DTYPES[dtype], same_dtype=False)
    assert_close(inverse, tall @ inverse_of(name, z).T, DTYPES[dtype], same_dtype=False)
    assert_close(transform.forward(x.T, dim=0), forward.T)


@over_large
def test_products_and_decompositions(name, p, always_fast):
    a, b = randn(2, 1, 3, 2, p, seed=1), randn(2, 2, 3, p, seed=2)
    z = MATRICES[name](p)

    def slices(x):
        return torch.einsum("kj,...mnj->...kmn", z, x.to(z.dtype))

    expected = torch.einsum("jk,...kmn->...mnj", inverse_of(name, z), slices(a) @ slices(b))
    assert_close(lproduct(a, b, name), expected.real)
    one = lidentity(3, p, name, dtype=torch.float64)
    assert_close(lproduct(one, a, name), a)
    assert_close(ltranspose(ltranspose(a, name), name), a)
    u, s, v = lsvd_energy(a, 1.0, name)
    assert_close(lproduct(lproduct(u, s, name), ltranspose(v, name), name), a, 1e-9)
    scale = p if name == "fft" else 1
    assert_close(nuclear_norm(a, name), torch.linalg.svdvals(slices(a)).sum((-2, -1)) / scale)


@pytest.mark.parametrize("name", ["dct", "hadamard", "dft"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.complex64])
def test_products_in_other_dtypes(name, dtype, always_fast):
    a, b = randn(3, 2, 512, seed=1, dtype=dtype), randn(2, 3, 512, seed=2, dtype=dtype)
    out = lproduct(a, b, name)
    assert out.dtype == dtype
    assert_close(out, lproduct(wide(a), wide(b), name), 2e-2, same_dtype=False)
