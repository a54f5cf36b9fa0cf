import pytest
import torch

from .cases import DTYPES, assert_same, draw

# P, B, T, M: one slice, odd and prime sizes, 2^k - 1, several tiles, and more slices than a program takes.
SIZES = [(1, 2, 5, 24), (2, 1, 7, 1), (3, 2, 5, 13), (4, 1, 67, 32), (8, 1, 7, 13)]
LONG = [(9, 1, 5, 16), (16, 1, 7, 7)]
FORMS = ["plain", "bias", "norm", "shared norm"]


def case(p, b, t, m, dtype, form="plain", second_dtype=None):
    """a and b far from zero mean, and what f(b) takes."""
    options = {}
    if form == "bias":
        options["bias"] = draw(p, m, dtype=dtype, seed=2)
    if "norm" in form:
        rows = 1 if form == "shared norm" else p
        mean, rstd = (draw(p, b, t, dtype=torch.float32, seed=seed) for seed in (3, 4))
        options["norm"] = (mean, rstd.exp(), draw(rows, m, dtype=dtype, seed=5), draw(rows, m, dtype=dtype, seed=6))
    a, b = draw(p, b, t, m, dtype=dtype) + 1, draw(p, b, t, m, dtype=second_dtype or dtype, seed=1) + 1
    return a.detach(), b.detach(), {name: _detached(option) for name, option in options.items()}


def _detached(option):
    return tuple(t.detach() for t in option) if isinstance(option, tuple) else option.detach()


def reference(a, b, bias=None, norm=None):
    a, b = a.double(), b.double()
    if bias is not None:
        b = b + bias.double()[:, None, None]
    if norm is not None:
        mean, rstd, gamma, beta = (t.double() for t in norm)
        b = (b - mean[..., None]) * rstd[..., None] * gamma[:, None, None] + beta[:, None, None]
    return torch.einsum("j...,k...->jk", a, b)


def assert_right(a, b, options, changed=None):
    from lformer.kernels.gpu.slice_products import slice_products

    found = slice_products(*(changed or (a, b)), **options)
    assert found.dtype == torch.float32
    assert_same({"products": found}, {"products": reference(a, b, **options)}, 3e-6)  # no operand is rounded


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("size", SIZES)
def test_products(size, form, dtype):
    assert_right(*case(*size, dtype, form))


@pytest.mark.parametrize("form", ["bias", "norm"])
@pytest.mark.parametrize("size", LONG)
def test_more_slices_than_a_program_takes(size, form):
    assert_right(*case(*size, torch.float32, form))


@pytest.mark.parametrize("dtypes", [(torch.float32, torch.float16), (torch.float16, torch.float32)])
@pytest.mark.parametrize("form", ["bias", "norm"])
def test_two_dtypes(form, dtypes):
    assert_right(*case(3, 2, 5, 12, dtypes[0], form, dtypes[1]))


@pytest.mark.parametrize("m", [33, 64])
@pytest.mark.parametrize("together", [16, 2])
def test_many_tiles_in_one_program(together, m, monkeypatch):
    """With `together` 2 the parts are added in two steps."""
    from lformer.kernels.gpu import slice_products as gpu

    monkeypatch.setattr(gpu, "PROGRAMS", 3)
    monkeypatch.setattr(gpu, "TOGETHER", together)
    assert_right(*case(2, 3, 67, m, torch.float32, "norm"))


def test_strides_are_taken_care_of():
    a, b, options = case(3, 5, 4, 8, torch.float32, "norm")
    a = a.transpose(1, 2).contiguous().transpose(1, 2)
    assert_right(a, b.flip(-1).mT.contiguous().mT, options)


def test_the_order_of_the_sum_is_fixed():
    from lformer.kernels.gpu.slice_products import slice_products

    a, b, options = case(2, 3, 67, 64, torch.float32, "norm")
    assert torch.equal(slice_products(a, b, **options), slice_products(a, b, **options))


@pytest.mark.parametrize("form", FORMS)
def test_nothing_to_do(form):
    from lformer.kernels.gpu.slice_products import slice_products

    a, b, options = case(4, 1, 0, 8, torch.float32, form)
    assert torch.equal(slice_products(a, b, **options), a.new_zeros(4, 4))


def test_what_torch_compiles_with():
    a, b, options = case(3, 1, 2, 8, torch.float32, "norm")
    inputs = (a, b, None, *options["norm"])
    torch.library.opcheck(torch.ops.lformer.slice_products.default, inputs)


@pytest.mark.parametrize("form", FORMS)
def test_what_is_wrong_is_noticed(form):
    a, b, options = case(4, 2, 9, 31, torch.float16, form)
    with pytest.raises(AssertionError, match="relative error"):
        assert_right(a, b, options, changed=(b, a))
    late = a.clone()
    late[-1, -1, -1, -1] = 0
    with pytest.raises(AssertionError, match="relative error"):
        assert_right(a, b, options, changed=(late, b))
