"""The operations for the CPU against their formulas: outputs and every gradient."""

import pytest
import torch
import torch.nn.functional as F

from lformer.kernels import cpu
from lformer.kernels.cpu import slice_attention_cpu, slice_ffn_cpu, slice_linear_cpu, tube_norm_cpu, writes_scores

SIZES = [(1, 5, 7), (2, 16, 8), (3, 13, 11), (4, 128, 32), (5, 3, 1)]  # P, N, M: odd, prime, powers of two, one token
SIGMA = {"none": lambda y: y, "relu": F.relu, "gelu": F.gelu}
TOLERANCE = {torch.float64: 1e-10, torch.float32: 2e-5, torch.bfloat16: 6e-2}


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def linear_formula(x, weight, bias=None, activation="none"):
    slices = []
    for k in range(len(x)):
        y = x[k] @ weight[k].T
        slices.append(SIGMA[activation](y if bias is None else y + bias[k]))
    return torch.stack(slices)


def ffn_formula(x, inner_weight, inner_bias, outer_weight, outer_bias=None, activation="relu"):
    return linear_formula(linear_formula(x, inner_weight, inner_bias, activation), outer_weight, outer_bias)


def tube_norm_formula(s, x, bias, inverse, gamma, beta, matrix, eps=1e-5, post=True):
    def mix(z, a):
        return a if z is None else torch.einsum("jk,k...->j...", z, a)

    r = x + mix(inverse, s if bias is None else s + bias[:, None])
    mean = r.mean(-1, keepdim=True)
    variance = (r - mean).square().mean(-1, keepdim=True)
    n = (r - mean) / (variance + eps).sqrt() * gamma[:, None] + beta[:, None]
    return (n if post else r), mix(matrix, n)


def random(*shape, dtype=torch.float64, gradient=True):
    return torch.randn(shape, dtype=torch.float64).to(dtype).requires_grad_(gradient)


def linear_inputs(p, n, m, out, dtype=torch.float64, bias=True, gradient=True):
    options = {"dtype": dtype, "gradient": gradient}
    return [random(p, n, m, **options), random(p, out, m, **options), random(p, out, **options) if bias else None]


def ffn_inputs(p, n, m, dtype=torch.float64, outer_bias=True, gradient=True):
    options = {"dtype": dtype, "gradient": gradient}
    shapes = [(p, n, m), (p, 4 * m + 1, m), (p, 4 * m + 1), (p, m, 4 * m + 1)]
    return [random(*shape, **options) for shape in shapes] + ([random(p, m, **options)] if outer_bias else [None])


def norm_inputs(p, n, m, dtype=torch.float64, bias=True, transforms=True, shared=False, gradient=True):
    options = {"dtype": dtype, "gradient": gradient}
    rows = 1 if shared else p
    return [
        random(p, n, m, **options),
        random(p, n, m, **options),
        random(p, m, **options) if bias else None,
        random(p, p, **options) if transforms else None,
        random(rows, m, **options),
        random(rows, m, **options),
        random(p, p, **options) if transforms else None,
    ]


def assert_same(operation, formula, inputs, dtype=torch.float64, **options):
    """Outputs and gradients of the operation are those of the formula in float64."""
    wide = [None if t is None else t.detach().double().requires_grad_(t.requires_grad) for t in inputs]
    actual, expected = operation(*inputs, **options), formula(*wide, **options)
    actual, expected = (out if isinstance(out, tuple) else (out,) for out in (actual, expected))
    tolerance = {"atol": TOLERANCE[dtype], "rtol": TOLERANCE[dtype]}
    for a, b in zip(actual, expected, strict=True):
        assert a.dtype == dtype
        torch.testing.assert_close(a.double(), b, **tolerance)
    leaves = [t for t in inputs if t is not None and t.requires_grad]
    if not leaves:
        return
    grads = [torch.randn_like(b) for b in expected]
    wide_leaves = [t for t in wide if t is not None and t.requires_grad]
    found = torch.autograd.grad(actual, leaves, [g.to(dtype) for g in grads])
    for a, b in zip(found, torch.autograd.grad(expected, wide_leaves, grads), strict=True):
        scale = b.abs().max().clamp(min=1)
        torch.testing.assert_close(a.double() / scale, b / scale, **tolerance)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("activation", SIGMA)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("gradient", [True, False])
def test_slice_linear_is_the_formula(size, activation, bias, gradient):
    inputs = linear_inputs(*size, out=13, bias=bias, gradient=gradient)
    assert_same(slice_linear_cpu, linear_formula, inputs, activation=activation)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("outer_bias", [True, False])
@pytest.mark.parametrize("gradient", [True, False])
def test_slice_ffn_is_the_formula(size, activation, outer_bias, gradient):
    inputs = ffn_inputs(*size, outer_bias=outer_bias, gradient=gradient)
    assert_same(slice_ffn_cpu, ffn_formula, inputs, activation=activation)


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("outer_bias", [True, False])
@pytest.mark.parametrize("size", [(1, 20, 7), (3, 21, 5)])
def test_feed_forward_slice_by_slice_is_the_formula(monkeypatch, size, activation, outer_bias):
    monkeypatch.setattr(cpu, "LARGE_HIDDEN", 1)
    inputs = ffn_inputs(*size, outer_bias=outer_bias)
    assert_same(slice_ffn_cpu, ffn_formula, inputs, activation=activation)  # with gradients: the batched products
    monkeypatch.setattr(cpu, "_product", None)
    inputs = [None if t is None else t.detach() for t in inputs]
    assert_same(slice_ffn_cpu, ffn_formula, inputs, activation=activation)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("post", [True, False])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("transforms", [True, False])
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("gradient", [True, False])
def test_tube_norm_is_the_formula(size, post, bias, transforms, shared, gradient):
    inputs = norm_inputs(*size, bias=bias, transforms=transforms, shared=shared, gradient=gradient)
    assert_same(tube_norm_cpu, tube_norm_formula, inputs, post=post)


@pytest.mark.parametrize("size", [(1, 2, 5, 3), (3, 2, 7, 5), (4, 3, 16, 8), (2, 1, 1, 4)])  # P, B, T, E
@pytest.mark.parametrize("sequences", [1, 4, 100])
def test_written_attention_is_the_formula(monkeypatch, size, sequences):
    p, b, t, e = size
    monkeypatch.setattr(cpu, "SCORE_BYTES", sequences * t * t * 8)
    qkv = random(p, b, t, 3, 1, e, gradient=False)
    q, k, v = qkv.unbind(3)
    weights = torch.einsum("pbqhe,pbkhe->pbhqk", q, k).div(e**0.5).softmax(-1)
    expected = torch.einsum("pbhqk,pbkhe->pbqhe", weights, v)
    actual = slice_attention_cpu(qkv)
    assert actual.shape == (p, b, t, 1, e)
    torch.testing.assert_close(actual, expected)


def test_written_attention_keeps_large_scores_finite():
    qkv = random(2, 1, 5, 3, 1, 4, gradient=False) * 1e3
    assert slice_attention_cpu(qkv).isfinite().all()


def test_written_attention_of_nothing():
    assert slice_attention_cpu(torch.zeros(2, 2, 0, 3, 1, 4)).shape == (2, 2, 0, 1, 4)


def test_scores_are_written_only_where_that_is_faster(monkeypatch):
    qkv = random(4, 2, 16, 3, 1, 8, dtype=torch.float32, gradient=False)
    assert not writes_scores(qkv), "one thread"
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    assert writes_scores(qkv)
    assert not writes_scores(qkv.bfloat16())
    assert not writes_scores(qkv.requires_grad_())
    with torch.no_grad():
        assert writes_scores(qkv)
    assert not writes_scores(torch.zeros(4, 2, 16, 3, 2, 4)), "two heads"
    assert not writes_scores(torch.zeros(4, 2, 129, 3, 1, 4)), "long"
    with torch.autocast("cpu"):
        assert not writes_scores(qkv.detach())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("gradient", [True, False])
def test_lower_precisions(dtype, gradient):
    options = {"dtype": dtype, "gradient": gradient}
    assert_same(slice_linear_cpu, linear_formula, linear_inputs(3, 37, 4, out=5, **options), dtype)
    assert_same(slice_ffn_cpu, ffn_formula, ffn_inputs(3, 37, 1, **options), dtype, activation="gelu")
    inputs = norm_inputs(3, 37, 31, **options)
    with torch.no_grad():
        for matrix in (inputs[3], inputs[6]):
            matrix *= 0.5
    assert_same(tube_norm_cpu, tube_norm_formula, inputs, dtype)


@pytest.mark.parametrize("gradient", [True, False])
def test_inputs_are_not_changed(gradient):
    cases = [
        (slice_linear_cpu, linear_inputs(3, 5, 7, out=4, gradient=gradient), {"activation": "relu"}),
        (slice_ffn_cpu, ffn_inputs(3, 5, 7, gradient=gradient), {"activation": "gelu"}),
        (tube_norm_cpu, norm_inputs(3, 5, 7, gradient=gradient), {}),
        (tube_norm_cpu, norm_inputs(3, 5, 7, transforms=False, bias=False, gradient=gradient), {"post": False}),
    ]
    for operation, inputs, options in cases:
        before = [None if t is None else t.detach().clone() for t in inputs]
        operation(*inputs, **options)
        for now, then in zip(inputs, before, strict=True):
            assert now is None or torch.equal(now, then)


@pytest.mark.parametrize("shared", [True, False])
def test_eps_is_that_of_the_caller(shared):
    assert_same(tube_norm_cpu, tube_norm_formula, norm_inputs(3, 5, 7, shared=shared), eps=0.5)


def test_pre_norm_keeps_the_residual_sum_apart_from_its_norm():
    inputs = norm_inputs(2, 3, 5, transforms=False, gradient=False)
    y, yh = tube_norm_cpu(*inputs, post=False)
    assert not torch.allclose(y, yh)
    y, yh = tube_norm_cpu(*inputs, post=True)
    assert y is yh, "without a transform the norm is both"


def test_no_transform_of_the_norm_is_made_where_none_is_wanted():
    inputs = norm_inputs(3, 4, 5, gradient=False)
    y, yh = tube_norm_cpu(*inputs, transformed=False)
    assert yh is None
    torch.testing.assert_close(y, tube_norm_cpu(*inputs)[0])


def test_tube_norm_takes_batch_and_tokens_apart():
    inputs = norm_inputs(3, 12, 5, gradient=False)
    flat = tube_norm_cpu(*inputs)
    apart = tube_norm_cpu(inputs[0].view(3, 2, 6, 5), inputs[1].view(3, 2, 6, 5), *inputs[2:])
    for a, b in zip(apart, flat, strict=True):
        assert a.shape == (3, 2, 6, 5)
        torch.testing.assert_close(a.view(3, 12, 5), b)


def test_dropout_is_on_the_sublayer_alone():
    s, x, _, inverse, gamma, beta, matrix = norm_inputs(3, 400, 5, gradient=False)
    r, _ = tube_norm_cpu(s, x, None, inverse, gamma, beta, matrix, dropout=0.25, post=False)
    dropped = torch.isclose(r, x, atol=0)
    assert 0.2 < dropped.double().mean() < 0.3
    full, _ = tube_norm_cpu(s, x, None, inverse, gamma, beta, matrix, post=False)
    torch.testing.assert_close((r - x)[~dropped], (full - x)[~dropped] / 0.75)


def test_weight_gradient_has_the_layout_of_the_weight():
    x, weight, bias = linear_inputs(3, 5, 7, out=4)
    (grad,) = torch.autograd.grad(slice_linear_cpu(x, weight, bias).sum(), weight)  # `.grad` would be a copy
    assert grad.is_contiguous()


@pytest.mark.parametrize("activation", ["none", "relu", "gelu"])
def test_second_derivatives(activation):
    inputs = linear_inputs(2, 3, 4, out=3)
    assert torch.autograd.gradgradcheck(lambda *t: slice_linear_cpu(*t, activation), inputs)


def test_functional_gradients_and_vmap():
    x, weight, bias = (t.detach() for t in linear_inputs(2, 3, 4, out=5))
    weights = torch.stack([weight, 2 * weight])

    def loss(function):
        return lambda w: function(x, w, bias).square().sum()

    found = torch.func.vmap(torch.func.grad(loss(slice_linear_cpu)))(weights)
    expected = torch.func.vmap(torch.func.grad(loss(linear_formula)))(weights)
    torch.testing.assert_close(found, expected)


def test_autocast_keeps_the_residual_stream_and_trains_in_two_dtypes():
    x, weight, bias = linear_inputs(3, 16, 8, out=8, dtype=torch.float32)
    gamma, beta = torch.ones(3, 8), torch.zeros(3, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        s = slice_linear_cpu(x, weight, bias)
        assert s.dtype == torch.bfloat16
        r, _ = tube_norm_cpu(s, x, None, torch.eye(3), gamma, beta, None, post=False)
        wide, _ = tube_norm_cpu(torch.zeros_like(x), x, None, torch.eye(3), gamma, beta, None, post=False)
    assert r.dtype == torch.float32
    torch.testing.assert_close(r - x, s.float(), atol=1e-6, rtol=1e-6)
    assert torch.equal(wide, x)
    r.sum().backward()
    assert all(t.grad.dtype == torch.float32 for t in (x, weight, bias))


@pytest.mark.parametrize("gradient", [True, False])
def test_under_compile(gradient):
    torch._dynamo.reset()

    def layer(x, w1, b1, w2, b2, gamma, beta, inverse, matrix):
        assert not writes_scores(x.view(3, 1, 6, 1, 1, 5).expand(-1, -1, -1, 3, -1, -1).float())
        s = slice_ffn_cpu(x, w1, b1, w2, b2, activation="gelu")
        return tube_norm_cpu(s, x, None, inverse, gamma, beta, matrix)

    inputs = ffn_inputs(3, 6, 5, gradient=gradient) + norm_inputs(3, 6, 5, gradient=gradient)[4:6]
    inputs += [random(3, 3, gradient=gradient), random(3, 3, gradient=gradient)]
    assert_same(torch.compile(layer, backend="aot_eager", fullgraph=True), layer, inputs)


@pytest.mark.parametrize("wrong", range(7))
def test_parity_check_can_fail(wrong):
    """A formula with one input changed is told apart, by its outputs."""

    def changed(*inputs, **options):
        inputs = [t if t is None or i != wrong else t * 1.01 for i, t in enumerate(inputs)]
        return tube_norm_formula(*inputs, **options)

    with pytest.raises(AssertionError):
        assert_same(tube_norm_cpu, changed, norm_inputs(3, 5, 7))
