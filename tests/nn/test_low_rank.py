"""A layer of two factors is the layer of their product: outputs, gradients, and how large the numbers start."""

import math

import pytest
import torch

from lformer import LFormerConfig, LFormerForCausalLM, LFormerModel
from lformer.nn import LAttention, LDecoderLayer, LEncoderLayer, LFeedForward, LLinear, LowRankLLinear

from .cases import (
    FEW_CASES,
    assert_block_diagonal,
    assert_close,
    assert_parity,
    by_kernels,
    case_ids,
    leaf,
    make_config,
    randn,
    randomize,
)

B, T, RANK = 2, 3, 2
over_few = pytest.mark.parametrize(("name", "p"), FEW_CASES, ids=case_ids(FEW_CASES))


def multiplied_out(linear):
    """The factors of every slice multiplied by hand; complex slices as complex numbers."""
    p, c = linear.tube_length, linear.num_complex
    r = p - 2 * c
    products = [linear.left[k] @ linear.right[k] for k in range(r)]
    left, right = (torch.complex(part[r : r + c], part[r + c :]) for part in (linear.left, linear.right))
    pairs = [left[k] @ right[k] for k in range(c)]
    return torch.stack([*products, *(pair.real for pair in pairs), *(pair.imag for pair in pairs)])


def whole(linear):
    """An LLinear of full matrices that hold the product."""
    full = LLinear(
        linear.in_features, linear.out_features, linear.tube_length, transform=None, num_complex=linear.num_complex
    ).double()
    del full.weight, full.bias
    full.weight, full.bias = multiplied_out(linear), linear.bias  # part of the graph: gradients reach the factors
    return full


def with_whole_matrices(layer):
    """The same layer, every pair of factors multiplied out."""
    for parent in list(layer.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, LowRankLLinear):
                setattr(parent, name, whole(child))
    return layer


@over_few
@pytest.mark.parametrize("interleaved", [False, True])
def test_it_is_the_layer_of_the_product(name, p, interleaved):
    num_complex = make_config(name, p).num_complex
    linear = randomize(LowRankLLinear(2 * p * p, 3 * p, p, RANK, num_complex=num_complex))
    assert_close(linear.product(), multiplied_out(linear))
    xh = leaf(p, B, T, 2 * p)
    expected = whole(linear).slices(xh, interleaved=interleaved)
    assert_parity(linear.slices(xh, interleaved=interleaved), expected, [xh, *linear.parameters()])
    without = linear.slices(xh, bias=False)
    assert_close(without + linear.bias[:, None, None], linear.slices(xh))


@over_few
@pytest.mark.parametrize("kind", [LEncoderLayer, LDecoderLayer])
def test_a_layer_of_factors_is_the_layer_of_whole_matrices(name, p, kind):
    options = {"cross_attention": True} if kind is LDecoderLayer else {}
    layer, twin = (randomize(kind(make_config(name, p, linear_rank=RANK), **options)) for _ in range(2))
    names = [name for name, child in layer.named_modules() if isinstance(child, LowRankLLinear)]
    assert len(names) == (7 if options else 4)
    assert not any(type(child) is LLinear for child in layer.modules())
    with_whole_matrices(twin)
    x, memory = randn(B, T, layer.config.hidden_size), randn(B, 2, layer.config.hidden_size, seed=1)
    inputs = (x, memory) if options else (x,)
    assert_close(layer(*inputs)[0], twin(*inputs)[0])


@pytest.mark.parametrize("changes", [{"activation_domain": "original"}, {"paper_counts": True}, {"hidden_act": "gelu"}])
def test_other_choices_meet_factors(changes):
    for kind in (LFeedForward, LAttention):
        layer, twin = (randomize(kind(make_config(linear_rank=RANK, **changes))) for _ in range(2))
        x = randn(B, T, layer.config.hidden_size)
        outputs = [each(x) for each in (layer, with_whole_matrices(twin))]
        assert_close(*(output[0] if isinstance(output, tuple) else output for output in outputs))


@pytest.mark.parametrize("kernels", ["torch", "triton"])
def test_the_kernels_take_factors(kernels):
    """A rank that no tile divides."""
    torch.manual_seed(0)
    layer = LEncoderLayer(make_config(linear_rank=3, backend=kernels))
    layer.load_state_dict(randomize(LEncoderLayer(make_config(linear_rank=3))).float().state_dict())
    x = randn(B, T, 16)
    expected = with_whole_matrices(randomize(LEncoderLayer(make_config(linear_rank=3))))(x)[0]
    assert_close(by_kernels(layer, x), expected, 1e-5)


@torch.no_grad()
@pytest.mark.parametrize("name", ["dct", "dft"])
@pytest.mark.parametrize("gain", [1.0, 0.5])
def test_at_the_start_the_product_has_the_variance_of_the_full_matrix(name, gain):
    sizes = {"hidden_size": 512, "num_attention_heads": 8, "num_hidden_layers": 1, "vocab_size": 3}
    torch.manual_seed(0)
    models = [
        LFormerModel(LFormerConfig(transform=name, initializer_range=gain, linear_rank=rank, **sizes))
        for rank in (48, None)
    ]
    low, full = (model.layers[0].attention.query_key_value for model in models)
    for found, expected in zip(low.product(), full.weight, strict=True):
        assert abs(float(found.mean())) < 0.05 * float(expected.std())
        assert float(found.std()) == pytest.approx(float(expected.std()), rel=0.1)
    assert float(full.weight[0].std()) == pytest.approx(gain / math.sqrt(3 * 128), rel=0.05)
    assert float(low.bias.abs().max()) == 0.0


@torch.no_grad()
def test_alone_it_starts_with_that_variance_too():
    torch.manual_seed(0)
    low, full = LowRankLLinear(256, 512, 2, 40), LLinear(256, 512, 2, transform=None)
    assert float(low.product().std()) == pytest.approx(float(full.weight.std()), rel=0.1)


def test_slices_stay_apart_under_the_identity():
    assert_block_diagonal(randomize(LEncoderLayer(make_config("identity", 4, linear_rank=RANK))))


def test_a_saved_model_comes_back(tmp_path):
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "vocab_size": 9, "linear_rank": 3}
    model = LFormerForCausalLM(LFormerConfig(**sizes)).eval()
    model.save_pretrained(tmp_path)
    loaded = LFormerForCausalLM.from_pretrained(tmp_path).eval()
    assert loaded.config.linear_rank == 3
    ids = torch.arange(1, 7)[None]
    assert torch.equal(model(ids).logits, loaded(ids).logits)
    cache = model(ids[:, :4]).past_key_values
    assert_close(model(ids[:, 4:], past_key_values=cache).logits, model(ids).logits[:, 4:], 1e-5)
