"""Where L and L^-1 stand. Around a block they cancel between layers: a stack is P independent Transformers."""

import pytest
import torch

from lformer.nn import LDecoderLayer, LEncoderLayer

from .cases import (
    HEADS,
    INNER,
    REAL_CASES,
    WIDTH,
    assert_close,
    assert_differs,
    assert_parity,
    case_ids,
    from_slices,
    leaf,
    make_config,
    matrix_pair,
    randomize,
    to_slices,
)

over_cases = pytest.mark.parametrize(("name", "p"), REAL_CASES, ids=case_ids(REAL_CASES))
B, T, DEPTH = 2, 4, 3


def make_stack(name, p, scope, kind=LEncoderLayer, **changes):
    config = make_config(name, p, transform_scope=scope, **changes)
    return [randomize(kind(config), seed=index) for index in range(DEPTH)]


def run(stack, x, **options):
    for layer in stack:
        x = layer(x, **options)[0]
    return x


def independent_stacks(stack):
    """For every slice k, layers of width M with tube_length=1 that share the weights of slice k."""
    config = stack[0].config
    alone_config = make_config(
        "dct",
        1,
        hidden_size=WIDTH,
        num_attention_heads=HEADS,
        intermediate_size=INNER,
        norm_placement=config.norm_placement,
        hidden_act=config.hidden_act,
    )
    stacks = []
    for k in range(config.tube_length):
        alone = [type(layer)(alone_config).double() for layer in stack]
        for one, layer in zip(alone, stack, strict=True):
            one.load_state_dict({name: value[k : k + 1] for name, value in layer.state_dict().items()})
        stacks.append(alone)
    return stacks


def run_independently(stack, x, name, **options):
    p = stack[0].config.tube_length
    z, z_inverse = matrix_pair(name, p)
    xh = to_slices(z, x, p)
    yh = [run(alone, xh[k], **options) for k, alone in enumerate(independent_stacks(stack))]
    return from_slices(z_inverse, torch.stack(yh))


@over_cases
def test_a_stack_of_blocks_is_independent_transformers(name, p):
    stack = make_stack(name, p, "block")
    x = leaf(B, T, p * WIDTH)
    assert_parity(run(stack, x), run_independently(stack, x, name), [x])


@pytest.mark.parametrize(("name", "p"), [("dct", 4), ("haar", 3)])
@pytest.mark.parametrize("kind", [LEncoderLayer, LDecoderLayer])
@pytest.mark.parametrize("placement", ["post", "pre"])
def test_so_is_a_stack_of_decoder_blocks_and_of_pre_norm_blocks(name, p, kind, placement):
    stack = make_stack(name, p, "block", kind, norm_placement=placement, hidden_act="gelu")
    x = leaf(B, T, p * WIDTH)
    assert_parity(run(stack, x), run_independently(stack, x, name), [x])


@over_cases
def test_a_stack_of_sublayers_is_not(name, p):
    stack = make_stack(name, p, "sublayer")
    x = leaf(B, T, p * WIDTH)
    expected = run_independently(stack, x, name)
    if name == "identity":  # L does nothing, wherever it stands
        assert_close(run(stack, x), expected)
    else:
        assert_differs(run(stack, x), expected, by=0.1)


@over_cases
def test_the_scope_changes_no_weight(name, p):
    shapes = [
        {key: tuple(value.shape) for key, value in make_stack(name, p, scope)[0].state_dict().items()}
        for scope in ("sublayer", "block")
    ]
    assert shapes[0] == shapes[1]


def test_sublayers_of_a_block_need_slices():
    layer = LEncoderLayer(make_config(transform_scope="block"))
    x = torch.zeros(1, 3, 16)
    with pytest.raises(ValueError, match=r"call \.slices"):
        layer.attention(x)
    with pytest.raises(ValueError, match=r"call \.slices"):
        layer.feed_forward(x)


def test_a_decoder_layer_with_cross_attention_asks_for_its_memory():
    with pytest.raises(ValueError, match="needs the encoder's output"):
        LDecoderLayer(make_config(), cross_attention=True)(torch.zeros(1, 3, 16))
