"""Linear layers in int8: near the float ones, quarter the size, and clear about what they cannot do."""

import copy

import pytest
import torch
from torch import nn

from lformer.nn import LEncoderLayer, LLinear
from lformer.nn.config import LayerConfig
from lformer.nn.quantized import QuantizedLLinear, quantize_, quantize_rows


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def relative_error(actual, expected):
    return ((actual - expected).norm() / expected.norm()).item()


def whole_numbers(*shape):
    """Rows of whole numbers with one of 127: int8 holds them without error."""
    x = torch.randint(-127, 128, shape).float()
    x[..., 0] = 127
    return x


@pytest.mark.parametrize("p", [1, 3, 4])
@pytest.mark.parametrize("bias", [True, False])
def test_exact_where_int8_is(p, bias):
    linear = LLinear(7 * p, 5 * p, p, bias=bias, transform=None)
    with torch.no_grad():
        linear.weight.copy_(2 * whole_numbers(p, 5, 7))
    x = whole_numbers(p, 2, 11, 7)
    quantized = QuantizedLLinear(linear)
    torch.testing.assert_close(quantized.slices(x), linear.slices(x), atol=0.1, rtol=1e-6)
    torch.testing.assert_close(quantized.slices(x, bias=False), linear.slices(x, bias=False), atol=0.1, rtol=1e-6)


@pytest.mark.parametrize("p", [1, 3, 4])
def test_error_is_that_of_eight_bits(p):
    linear = LLinear(64 * p, 48 * p, p)
    x = torch.randn(3, 17, 64 * p) * torch.logspace(-3, 3, 17)[:, None]  # every row has its own scale
    for row in range(17):
        actual, expected = QuantizedLLinear(linear)(x[:, row]), linear(x[:, row])
        assert relative_error(actual, expected) < 0.02


def test_rows_come_back_within_half_a_step():
    x = torch.randn(50, 31) * torch.logspace(-30, 30, 50)[:, None]
    rounded, scale = quantize_rows(x)
    assert rounded.dtype == torch.int8
    assert ((rounded * scale - x).abs() <= scale * 0.5001).all()
    assert (rounded.abs().amax(-1) == 127).all(), "the largest of a row uses the whole range"


def test_zeros_stay_zeros():
    rounded, scale = quantize_rows(torch.zeros(2, 3))
    assert (rounded == 0).all()
    assert (scale > 0).all(), "or their product would be 0 / 0"
    linear = LLinear(12, 8, 2, transform=None)
    with torch.no_grad():
        linear.weight[0] = 0
    y = QuantizedLLinear(linear).slices(torch.zeros(2, 3, 6))
    torch.testing.assert_close(y, linear.bias[:, None].expand(2, 3, 4).detach())


@pytest.mark.parametrize("interleave", [False, True])
@pytest.mark.parametrize("placement", ["post", "pre"])
def test_an_encoder_layer_is_near_its_float_self(interleave, placement):
    config = LayerConfig(
        hidden_size=128, num_attention_heads=4, interleave=interleave, norm_placement=placement, hidden_dropout_prob=0.0
    )
    layer = LEncoderLayer(config).eval()
    x = torch.randn(2, 9, 128)
    quantized = quantize_(copy.deepcopy(layer), narrowest=32)
    names = [name for name, module in quantized.named_modules() if isinstance(module, QuantizedLLinear)]
    assert names == ["attention.query_key_value", "attention.output", "feed_forward.inner", "feed_forward.outer"]
    with torch.no_grad():
        error = relative_error(quantized(x)[0], layer(x)[0])
    assert 0 < error < 0.01


def test_bfloat16_in_bfloat16_out():
    linear = LLinear(16, 8, 2).bfloat16()
    x = torch.randn(3, 16)
    y = QuantizedLLinear(linear)(x.bfloat16())
    assert y.dtype == torch.bfloat16
    assert relative_error(y.float(), linear.float()(x)) < 0.05


def test_a_quarter_of_the_memory_and_saved_like_any_module():
    linear = LLinear(256, 256, 4, bias=False)
    quantized = QuantizedLLinear(linear)
    assert quantized.weight_int8.nbytes * 4 == linear.weight.nbytes
    other = QuantizedLLinear(LLinear(256, 256, 4, bias=False))
    other.load_state_dict(quantized.state_dict())
    x = torch.randn(2, 256)
    assert torch.equal(other(x), quantized(x))
    assert list(quantized.parameters()) == []


def test_the_layer_it_was_made_from_is_not_changed():
    linear = LLinear(16, 8, 2)
    before = copy.deepcopy(linear.state_dict())
    QuantizedLLinear(linear).shift.zero_()
    for name, value in linear.state_dict().items():
        assert torch.equal(value, before[name])


def test_narrow_layers_stay_as_they_are():
    model = nn.Sequential(LLinear(512, 512, 2), LLinear(512, 256, 2), nn.Linear(256, 2))
    quantize_(model)
    assert [type(module) for module in model] == [QuantizedLLinear, LLinear, nn.Linear]


def test_nothing_to_gain_is_said():
    with pytest.raises(ValueError, match="found 1 LLinear, none with slices of 256 features"):
        quantize_(nn.Sequential(LLinear(64, 64, 4)))


def test_complex_slices_are_refused_before_anything_is_changed():
    model = nn.Sequential(LLinear(16, 16, 4), LLinear(16, 16, 4, transform="dft"))
    with pytest.raises(ValueError, match="real transform such as 'dct'"):
        quantize_(model, narrowest=1)
    assert type(model[0]) is LLinear
