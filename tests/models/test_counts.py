"""Exact parameter counts: every row of the paper's tables, in the clean form and in the printed one."""

import pytest

from lformer import LFormerModel

from .cases import make_config

# d, p, layers, printed form, positions, count. paper: Tables of encoder parameters; FINDINGS 4.
ROWS = [
    (128, 1, 4, False, "standard", 793_088),
    (128, 1, 1, False, "standard", 198_272),
    (128, 4, 4, False, "standard", 203_264),
    (128, 2, 4, False, "standard", 399_872),
    (256, 1, 4, False, "standard", 3_159_040),
    (256, 1, 1, False, "standard", 789_760),
    (256, 4, 4, False, "linear", 799_744),
    (768, 1, 4, False, "standard", 28_351_488),
    (768, 4, 4, False, "standard", 7_117_824),
    (128, 1, 4, True, "standard", 991_232),
    (128, 1, 1, True, "standard", 247_808),
    (128, 4, 4, True, "standard", 254_016),
    (128, 4, 4, True, "learned", 270_400),
    (128, 2, 4, True, "standard", 499_840),
    (256, 1, 4, True, "standard", 3_948_544),
    (256, 1, 1, True, "standard", 987_136),
    (256, 4, 4, True, "linear", 999_552),
]


def count(**changes):
    """Parameters of the encoder, positions with it, token embeddings without."""
    model = LFormerModel(make_config(max_position_embeddings=128, **changes))
    return sum(value.numel() for name, value in model.named_parameters() if not name.startswith("embed_tokens"))


@pytest.mark.parametrize(("d", "p", "layers", "printed", "positional", "expected"), ROWS)
def test_rows_of_the_paper(d, p, layers, printed, positional, expected):
    sizes = {"hidden_size": d, "num_attention_heads": 4, "tube_length": p, "intermediate_size": None}
    assert count(num_hidden_layers=layers, paper_counts=printed, positional=positional, **sizes) == expected


@pytest.mark.parametrize(("d", "p"), [(10, 4), (15, 3), (7, 5), (6, 6)])
@pytest.mark.parametrize("layers", [1, 3])
def test_the_formula_where_p_is_odd_or_does_not_divide_d(d, p, layers):
    m = -(-d // p)
    sizes = {"hidden_size": d, "tube_length": p, "num_attention_heads": p, "intermediate_size": 4 * m * p}
    assert count(num_hidden_layers=layers, **sizes) == layers * p * (12 * m * m + 13 * m)
    assert count(num_hidden_layers=layers, paper_counts=True, **sizes) == layers * p * (15 * m * m + 16 * m) + 2 * m


def test_low_rank_factors_match_the_tensor_model():
    """A layer of 16 D R + 13 D parameters: at D = 128 the rank 24 has exactly as many as P = 4."""
    sizes = {"hidden_size": 128, "num_attention_heads": 4, "num_hidden_layers": 4, "intermediate_size": None}
    assert count(tube_length=1, linear_rank=24, **sizes) == 4 * (16 * 128 * 24 + 13 * 128) == 203_264
    assert count(tube_length=4, **sizes) == 203_264
    assert count(tube_length=4, linear_rank=8, **sizes) == 4 * 4 * (16 * 32 * 8 + 13 * 32)


def test_what_options_add():
    plain, p, d = count(), 4, 16
    assert count(transform="dft") == count(transform_scope="block") == count(interleave=True) == plain
    assert count(feed_forward_fold="shuffled") == plain
    assert count(transform="learned") == plain + 2 * 2 * 2 * p * p  # a pair in both sublayers of both layers
    assert count(transform="learned", transform_scope="block") == plain + 2 * 2 * p * p
    assert count(transform="learned-orthogonal") == plain + 2 * 2 * p * p
    assert count(positional="learned") == plain + 128 * d
    assert count(positional="learned-alpha") == plain + p
    assert count(qk_norm=True) == plain + 2 * 2 * p * 2  # of queries and keys in both layers, heads of 2 features
    assert count(gated=True) == plain + 2 * p * (4 * 8 + 8)  # M F + F more in every slice of both layers
    assert count(norm_placement="pre") == plain + 2 * d  # a norm after the stack
