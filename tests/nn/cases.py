"""What the tests of the layers share: transforms and sizes to run over, random weights, and the one way to compare."""

import torch

from lformer.algebra import get_transform
from lformer.nn import LayerConfig, LLinear

REAL = ("dct", "dst", "hartley", "hadamard", "haar", "identity", "random")
COMPLEX = ("dft", "fft")
LEARNED = ("learned", "learned-orthogonal")
REAL_CASES = [(name, p) for name in REAL for p in (2, 3, 4, 8) if name != "hadamard" or p != 3]
COMPLEX_CASES = [(name, p) for name in COMPLEX for p in (1, 2, 3, 4, 5, 8)]
LEARNED_CASES = [(name, p) for name in LEARNED for p in (2, 3, 4)]
FEW_CASES = [
    ("dct", 4),
    ("hartley", 3),
    ("random", 2),
    ("dft", 4),
    ("dft", 5),
    ("learned", 3),
    ("learned-orthogonal", 4),
]

HEADS, HEAD_SIZE = 2, 2
WIDTH = HEADS * HEAD_SIZE  # M
INNER = 6  # F


def case_ids(cases):
    return ["-".join(map(str, case)) for case in cases]


def make_config(transform="dct", p=4, **changes):
    """A layer without dropout, whose slices have 4 features, 2 heads and 6 hidden units."""
    options = {
        "hidden_size": p * WIDTH,
        "num_attention_heads": p * HEADS,
        "intermediate_size": p * INNER,
        "tube_length": p,
        "transform": transform,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
    }
    return LayerConfig(**{**options, **changes})


def randn(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def leaf(*shape, seed=0):
    return randn(*shape, seed=seed).requires_grad_()


@torch.no_grad()
def randomize(module, seed=0):
    """The module in float64, every parameter moved away from what it starts with, biases and norms too."""
    module.double()
    for index, (name, parameter) in enumerate(module.named_parameters()):
        change = 0.4 * randn(*parameter.shape, seed=1000 * seed + index)
        starts_random = isinstance(module.get_submodule(name.rpartition(".")[0]), LLinear)
        parameter.copy_(change if starts_random else parameter + change)
    return module


def by_kernels(layer, x):
    """What a layer gives in float32 where backend="triton" can run: on a GPU, or else in Triton's interpreter."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return layer.to(device)(x.to(device, torch.float32))[0].double().cpu()


def matrix_pair(name, p):
    transform = get_transform(name, p)
    return transform.matrix, transform.inverse_matrix


def to_slices(matrix, x, p):
    """L on ordinary activations, without the library: (B, T, D) -> (P, B, T, M)."""
    return torch.einsum("kl,btlm->kbtm", matrix, x.unflatten(-1, (p, -1)))


def from_slices(matrix, xh):
    return torch.einsum("kl,lbtm->btkm", matrix, xh).flatten(-2)


def assert_close(actual, expected, tolerance=1e-10):
    """Entries differ by at most `tolerance` times the largest one expected, or 1. Shapes and dtypes are equal."""
    assert actual.shape == expected.shape, f"shape {tuple(actual.shape)}, expected {tuple(expected.shape)}"
    assert actual.dtype == expected.dtype, f"dtype {actual.dtype}, expected {expected.dtype}"
    assert actual.numel() > 0, "nothing to compare"
    difference = float((actual.detach().double() - expected.detach().double()).abs().max())
    scale = max(1.0, float(expected.detach().double().abs().max()))
    assert difference <= tolerance * scale, f"differs by {difference:.3g}, at most {tolerance * scale:.3g} is allowed"


def assert_differs(actual, other, by=1e-3):
    assert actual.shape == other.shape
    difference = float((actual - other).detach().abs().max())
    assert difference > by, f"differs by {difference:.3g} only"


def assert_block_diagonal(layer, batch=2, length=3):
    """What changes in one slice of the input, original domain, changes that slice of the output and no other."""
    p, width = layer.config.tube_length, layer.config.slice_size
    x = randn(batch, length, p * width)
    changed = x.clone()
    changed[..., width : 2 * width] += 1
    difference = layer(x)[0] - layer(changed)[0]
    moved = difference.detach().unflatten(-1, (p, width)).abs().amax((0, 1, 3))
    assert moved[1] > 1e-3, "nothing moved"
    assert moved.sum() == moved[1], f"other slices moved: {moved.tolist()}"


def assert_parity(actual, expected, leaves, expected_leaves=None, tolerance=1e-10):
    """Both outputs are equal, and so are the gradients that a random cotangent gives to the leaves."""
    leaves = list(leaves)
    expected_leaves = leaves if expected_leaves is None else list(expected_leaves)
    assert len(leaves) == len(expected_leaves) > 0
    assert_close(actual, expected, tolerance)
    cotangent = randn(*actual.shape, seed=99)
    ours = torch.autograd.grad(actual, leaves, cotangent, retain_graph=True)
    theirs = torch.autograd.grad(expected, expected_leaves, cotangent, retain_graph=True)
    for one, other in zip(ours, theirs, strict=True):
        assert_close(one.reshape(other.shape), other, tolerance)
    assert any(float(grad.abs().max()) > 1e-3 for grad in theirs), "all gradients vanish: nothing was compared"
