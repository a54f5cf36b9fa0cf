"""What the laws run over: transforms, tube lengths, dtypes and kinds of tensors, and the one way to compare."""

from functools import lru_cache

import torch

from lformer.algebra import get_transform, lproduct, matrices

NAMED = ("dct", "dst", "hartley", "hadamard", "haar", "dft", "fft", "identity", "random")
# A user's matrices: not orthogonal; complex; complex with rows in conjugate pairs, like the DFT but not orthogonal.
CUSTOM = ("real", "complex", "paired")
NAMES = (*NAMED, *CUSTOM)
ORTHOGONAL = tuple(name for name in NAMED if name != "fft")
SCALED = NAMED  # Z Z^H = l I
REAL_RESULT = tuple(name for name in NAMES if name != "complex")  # real tensors have real products
SIZES = (1, 2, 3, 4, 5, 7, 8)

CASES = [(name, p) for name in NAMES for p in SIZES if name != "hadamard" or p in (1, 2, 4, 8)]
FEW_CASES = [(name, p) for name, p in CASES if p in ((4,) if name == "hadamard" else (4, 5))]

# What one rounding per entry leaves after a few products of numbers of size 1.
TOLERANCE = {
    torch.float64: 1e-11,
    torch.complex128: 1e-11,
    torch.float32: 1e-4,
    torch.complex64: 1e-4,
    torch.float16: 2e-2,
    torch.bfloat16: 1e-1,
}
DTYPES = tuple(TOLERANCE)
SHAPES = ((3, 3), (2, 4), (4, 2))


def case_ids(cases):
    return ["-".join(map(str, case)) for case in cases]


@lru_cache
def make(name, p):
    """The transform of a case: a name as it is, or one made from a matrix of the user's."""
    return name if name in NAMED else get_transform(make_matrix(name, p))


def make_matrix(name, p):
    """A matrix of the user's, with condition number 4 or so."""
    generator = torch.Generator().manual_seed(100 + p)
    dtype = torch.complex128 if name == "complex" else torch.float64
    left, right = (torch.linalg.qr(torch.randn(p, p, generator=generator, dtype=dtype))[0] for _ in range(2))
    z = (left * torch.linspace(0.5, 2.0, p)) @ right
    if name == "paired":
        order = torch.randperm(p, generator=generator)
        z = (matrices.fft_matrix(p) @ z.to(torch.complex128))[order]
    return z


def matrix_of(transform, p):
    """Z in float64 or complex128."""
    return get_transform(transform, p).matrix


def randn(*shape, seed=0, dtype=torch.float64):
    wide = torch.complex128 if dtype.is_complex else torch.float64
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=wide).to(dtype)


def low_rank(transform, m, n, p, rank=1, seed=0, dtype=torch.float64):
    """A tensor of tubal rank `rank`."""
    a, b = randn(m, rank, p, seed=seed, dtype=dtype), randn(rank, n, p, seed=seed + 1, dtype=dtype)
    return lproduct(a, b, transform)


KINDS = ("random", "rank-deficient", "zero", "constant-tubes", "one-entry")
KIND_CASES = [(kind, name, p) for kind in KINDS for name, p in (CASES if kind == "random" else FEW_CASES)]


def tensor_of_kind(kind, transform, m, n, p):
    """The tensors on which decompositions break: most slices of the last two vanish under one transform or another."""
    if kind == "random":
        return randn(m, n, p)
    if kind == "rank-deficient":
        return low_rank(transform, m, n, p)
    out = torch.zeros(m, n, p, dtype=torch.float64)
    if kind == "constant-tubes":
        out[:] = randn(m, n, 1)
    if kind == "one-entry":
        out[0, 0, 0] = 1.0
    return out


def assert_close(actual, expected, tolerance=None, *, same_dtype=True):
    """Entries differ by at most `tolerance` (by default that of the dtype) times the largest one expected, or 1."""
    if isinstance(expected, float):
        expected = torch.tensor(expected, dtype=torch.float64)
    assert actual.shape == expected.shape, f"shape {tuple(actual.shape)}, expected {tuple(expected.shape)}"
    assert not same_dtype or actual.dtype == expected.dtype, f"dtype {actual.dtype}, expected {expected.dtype}"
    if actual.numel() == 0:
        return
    limit = tolerance if tolerance is not None else TOLERANCE.get(actual.dtype, 0.0)  # integers: equal
    difference = float((wide(actual) - wide(expected)).abs().max())
    scale = max(1.0, float(wide(expected).abs().max()))
    assert difference <= limit * scale, f"differs by {difference:.3g}, at most {limit * scale:.3g} is allowed"


def wide(x):
    if not (x.is_complex() or x.is_floating_point()):
        return x.detach().cpu().double()
    return x.detach().cpu().to(torch.complex128 if x.is_complex() else torch.float64)


def assert_matches_reference(actual, reference, tolerance=None):
    """Like `assert_close`, where the reference may be complex by construction: its imaginary part must then vanish."""
    if reference.is_complex() and not actual.is_complex():
        assert float(reference.imag.abs().max()) <= 1e-11 * max(1.0, float(reference.abs().max())), "not real"
        reference = reference.real
    assert_close(actual, reference, tolerance, same_dtype=False)
