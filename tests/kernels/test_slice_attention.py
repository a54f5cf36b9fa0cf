import importlib
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from lformer.kernels.slice_attention import slice_attention, slice_attention_reference

from .cases import DEVICE, DTYPES, assert_parity, assert_same, draw

slice_attention_module = importlib.import_module("lformer.kernels.slice_attention")  # the package has the function

SIZES = [(1, 2, 7, 2, 5), (2, 2, 16, 1, 16), (3, 1, 37, 1, 24), (4, 2, 65, 2, 8), (2, 1, 128, 1, 96)]  # P, B, T, H, E


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("size", SIZES)
def test_outputs_and_gradients(size, causal, masked, dtype):
    p, b, t, h, e = size
    options = {"is_causal": causal}
    if masked:
        keys = torch.rand(b, t, generator=torch.Generator().manual_seed(0)) > 0.4
        keys[:, 0] = True  # torch's result for a query without keys is not a number
        options["keys"] = keys.to(DEVICE)
    assert_parity(
        partial(slice_attention, backend="triton", **options),
        partial(slice_attention_reference, **options),
        {"qkv": draw(p, b, t, 3, h, e, dtype=dtype)},
        dtype,
    )


def test_a_text_without_tokens_gives_zeros():
    qkv = draw(2, 2, 8, 3, 1, 8, dtype=torch.float32)
    keys = torch.tensor([[True] * 8, [False] * 8], device=DEVICE)
    y = slice_attention(qkv, keys, backend="triton")
    y.sum().backward()
    assert torch.equal(y[:, 1], torch.zeros_like(y[:, 1]))
    assert torch.isfinite(qkv.grad).all()


def test_dropout_is_the_same_backward():
    """With values that are all one, the output is the sum of the weights that were kept."""
    p, b, t, rate = 2, 2, 64, 0.5
    qkv = torch.zeros(p, b, t, 3, 1, 16, device=DEVICE)
    qkv[:, :, :, 2] = 1.0
    qkv.requires_grad_()
    torch.manual_seed(0)
    y = slice_attention(qkv, dropout=rate, backend="triton")
    assert abs(y.mean().item() - 1) < 0.05
    assert y.std().item() > 0.05
    y.sum().backward()
    # The sum of all outputs is that of v times the kept weights, and all v are one: both sums are equal.
    assert torch.allclose(qkv.grad[:, :, :, 2].sum((2, 3)), y.detach().sum((2, 3)), rtol=1e-4)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("size", [(2, 2, 7, 2, 8), (3, 1, 13, 1, 17), (1, 1, 33, 1, 72)])  # P, B, T, H, E
def test_gradients_under_dropout(size, causal, masked, dtype):
    """With the weights that the same seed keeps, which values that are the identity show."""
    p, b, t, h, e = size
    rate, hidden = 0.3, torch.ones(t, t, device=DEVICE).triu(1) * causal
    keys = torch.rand(b, t, generator=torch.Generator().manual_seed(0)).to(DEVICE) > 0.4
    keys[:, 0] = True
    hidden = (hidden.bool() | ~keys[:, None, None] if masked else hidden.bool().expand(b, 1, t, t))[None]

    def attend(qkv):
        torch.manual_seed(0)
        given = keys if masked else None
        return slice_attention(qkv, given, dropout=rate, is_causal=causal, backend="triton")

    tensors = {"qkv": draw(p, b, t, 3, h, e, dtype=dtype)}
    showing = tensors["qkv"].detach().clone()
    showing[:, :, :, 2] = torch.eye(t, e, device=DEVICE)[:, None]
    kept = (attend(showing)[..., :t] != 0).transpose(2, 3) / (1 - rate)
    assert 0.2 < (kept == 0).masked_select(~hidden.expand(p, b, h, t, t)).double().mean() < 0.4

    def reference(qkv):
        q, k, v = (part.transpose(2, 3) for part in qkv.unbind(3))
        weights = (q @ k.mT * e**-0.5).masked_fill(hidden, -float("inf")).softmax(-1)
        return (weights * kept @ v).transpose(2, 3)

    assert_parity(attend, reference, tensors, dtype)


@pytest.mark.parametrize("implementation", [SDPBackend.MATH, SDPBackend.FLASH_ATTENTION])
def test_what_torch_computes_has_the_layout_that_the_compiler_was_told(implementation):
    from lformer.kernels.gpu.slice_attention import attention_of_torch

    qkv = draw(2, 3, 5, 3, 2, 72, dtype=torch.float32 if DEVICE == "cpu" else torch.float16).detach()
    with sdpa_kernel(implementation):
        y = attention_of_torch(qkv, causal=True)
    assert y.is_contiguous()
    assert_same({"output": y}, {"output": slice_attention_reference(qkv.double(), is_causal=True)}, 2e-3)


def test_what_does_not_fit_on_the_chip():
    def is_short(t, e, dtype):
        return slice_attention_module._is_short(torch.empty(1, 1, t, 3, 1, e, dtype=dtype))

    assert is_short(128, 128, torch.bfloat16)
    assert is_short(128, 64, torch.float32)
    assert is_short(64, 128, torch.float32)
    assert not is_short(100, 96, torch.float32)
    assert not is_short(129, 8, torch.bfloat16)
    assert not is_short(8, 129, torch.bfloat16)


def test_long_sequences_go_to_torch():
    qkv = draw(2, 1, 130, 3, 1, 8, dtype=torch.float32)
    q, k, v = (part.transpose(1, 2) for part in qkv.flatten(0, 1).unbind(2))
    wanted = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).unflatten(0, (2, 1))
    assert torch.allclose(slice_attention(qkv, backend="triton"), wanted, atol=1e-6)
