"""A configuration that cannot hold is refused, with the nearest one that can."""

import pytest

from lformer import LFormerConfig
from lformer.nn import LayerConfig

REFUSED = [
    ({"num_attention_heads": 6}, r"num_attention_heads=6 is not divisible by tube_length=4.*; use 4 or 8$"),
    ({"num_attention_heads": 1}, r"num_attention_heads=1 is not divisible by tube_length=4.*; use 4 or 8$"),
    ({"num_attention_heads": 12}, r"gives 3 heads to every slice, which do not divide its 4 features.*; use 8 or 16$"),
    ({"num_attention_heads": 64}, r"gives 16 heads to every slice.*; use 8 or 16$"),
    ({"tube_length": 5, "num_attention_heads": 4}, r"not divisible by tube_length=5.*; use 5 or 10$"),
    ({"interleave": True, "hidden_size": 24}, r"attention features.*slice has 6; use hidden_size=16 or 32"),
    ({"interleave": True, "intermediate_size": 40}, r"feed-forward features.*has 10; use intermediate_size=32 or 48"),
    ({"interleave": True, "hidden_size": 8, "num_attention_heads": 4}, r"slice has 2; use hidden_size=16,"),
    ({"tube_length": 17, "num_attention_heads": 17}, r"tube_length=17 is larger than hidden_size=16.*at most 16"),
    ({"tube_length": 0}, "tube_length=0 must be a whole number of at least 1"),
    ({"hidden_size": -4}, "hidden_size=-4 must be"),
    ({"num_attention_heads": 0}, "num_attention_heads=0 must be"),
    ({"intermediate_size": 0}, "intermediate_size=0 must be"),
    ({"transform": "wavelet"}, "no transform is called 'wavelet'; there are dct, dst"),
    ({"transform": "hadamard", "tube_length": 2 * 3, "hidden_size": 24, "num_attention_heads": 6}, "power"),
    ({"hidden_act": "swish"}, "hidden_act='swish' is not one of 'relu', 'gelu', 'silu'"),
    ({"token_mixing": "mlp"}, "token_mixing='mlp' is not one of 'attention', 'fourier'"),
    ({"token_mixing": "fourier", "positional": "rope"}, r"positional='rope' is about queries.*such as 'standard', or"),
    (
        {"token_mixing": "fourier", "paper_counts": True},
        r"paper_counts=True is about queries.*; use paper_counts=False",
    ),
    ({"linear_rank": 5}, r"linear_rank=5 is more than the rank .* 4 or 16 wide; use at most 4, or None"),
    ({"linear_rank": 4, "intermediate_size": 12}, r"linear_rank=4 is more .*; use at most 3, or None"),
    ({"linear_rank": 0}, "linear_rank=0 must be a whole number of at least 1"),
    ({"token_mixing": "fourier", "qk_norm": True}, r"qk_norm=True is about queries.*; use qk_norm=False, or"),
    ({"qk_norm": True, "transform": "dft"}, r"transform='dft' are complex; use a real transform such as 'dct'"),
    ({"qk_norm": "yes"}, "qk_norm='yes' must be True or False"),
    ({"gated": 1}, "gated=1 must be True or False"),
    ({"feed_forward_fold": "mixed"}, "feed_forward_fold='mixed' is not one of 'same', 'shuffled'"),
    ({"feed_forward_fold": "shuffled", "transform_scope": "block"}, r"use transform_scope='sublayer', or feed_forward"),
    (
        {"feed_forward_fold": "shuffled", "hidden_size": 24},
        r"residual features.*slice has 6; use hidden_size=16 or 32, or feed_forward_fold='same'",
    ),
    ({"transform_scope": "layer"}, "transform_scope='layer' is not one of 'sublayer', 'block'"),
    ({"attention_domain": "fourier"}, "attention_domain='fourier' is not one of 'transform', 'original'"),
    ({"attention_domain": "original", "transform_scope": "block"}, "needs the L of its own"),
    ({"activation_domain": "fourier"}, "activation_domain='fourier' is not one of 'transform', 'original'"),
    ({"positional": "alibi"}, "positional='alibi' is not one of 'standard'"),
    ({"norm_placement": "sandwich"}, "norm_placement='sandwich' is not one of 'post', 'pre'"),
    ({"backend": "cuda"}, "backend='cuda' is not one of 'auto', 'torch', 'triton'"),
]
MODEL_REFUSED = [
    (
        {"positional": "rope", "num_attention_heads": 16},
        r"a head has 1 .* use num_attention_heads=4 or num_attention_heads=8",
    ),
    ({"output_projection": "sparse"}, "output_projection='sparse' is not one of 'dense', 'tensor'"),
    ({"output_projection": "tensor"}, "set tie_word_embeddings=False"),
    ({"vocab_size": 0}, "vocab_size=0 must be at least 1"),
    ({"num_hidden_layers": 0}, "num_hidden_layers=0 must be at least 1"),
    ({"token_mixing": "fourier", "is_decoder": True}, "it is for encoders; use token_mixing='attention' for a decoder"),
    ({"token_mixing": "fourier", "is_encoder_decoder": True}, "it is for encoders"),
    ({"share_layers": 2}, "share_layers=2 must be True or False"),
    ({"max_position_embeddings": 0}, "max_position_embeddings=0 must be at least 1"),
]
BASE = {"hidden_size": 16, "num_attention_heads": 4, "tube_length": 4}


@pytest.mark.parametrize(("changes", "message"), REFUSED, ids=[str(changes) for changes, _ in REFUSED])
@pytest.mark.parametrize("kind", [LayerConfig, LFormerConfig])
def test_refused(kind, changes, message):
    kind(**BASE)
    with pytest.raises(ValueError, match=message):
        kind(**{**BASE, **changes})


@pytest.mark.parametrize(("changes", "message"), MODEL_REFUSED, ids=[str(changes) for changes, _ in MODEL_REFUSED])
def test_refused_by_the_model(changes, message):
    with pytest.raises(ValueError, match=message):
        LFormerConfig(**{**BASE, **changes})


def test_what_a_message_suggests_is_accepted():
    for heads in (4, 8, 16):
        LayerConfig(**{**BASE, "num_attention_heads": heads})
    for size in (16, 32):
        LayerConfig(**{**BASE, "interleave": True, "hidden_size": size})


def test_sizes_that_follow():
    config = LayerConfig(hidden_size=10, tube_length=4, num_attention_heads=12, intermediate_size=18)
    assert (config.slice_size, config.padded_size, config.slice_intermediate_size) == (3, 12, 5)
    assert (config.heads_per_slice, config.head_size) == (3, 1)
    assert LayerConfig(hidden_size=12, tube_length=3, num_attention_heads=3).intermediate_size == 48
    assert [LayerConfig(**{**BASE, "transform": name}).num_complex for name in ("dct", "dft", "learned")] == [0, 1, 0]
