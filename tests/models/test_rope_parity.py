"""Rotary positions in a whole model: with one slice it is GPT-NeoX of transformers with the same weights."""

import pytest
import torch
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

from lformer import LFormerForCausalLM

from .cases import VOCAB, T, assert_close, assert_differs, make_config

HEADS, WIDTH = 4, 16


@pytest.fixture
def pair():
    torch.manual_seed(0)
    options = {"tube_length": 1, "num_attention_heads": HEADS, "norm_placement": "pre", "positional": "rope"}
    options |= {"hidden_act": "gelu", "scale_embedding": False, "tie_word_embeddings": False, "is_decoder": True}
    ours = LFormerForCausalLM(make_config(**options)).eval()
    config = GPTNeoXConfig(
        vocab_size=VOCAB,
        hidden_size=WIDTH,
        num_hidden_layers=2,
        num_attention_heads=HEADS,
        intermediate_size=32,
        max_position_embeddings=24,
        use_parallel_residual=False,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0, "partial_rotary_factor": 1.0},
        tie_word_embeddings=False,
        attention_dropout=0.0,
        hidden_dropout=0.0,
        bos_token_id=1,
        eos_token_id=1,
    )
    theirs = GPTNeoXForCausalLM(config).eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.normal_(std=0.3)
        copy(theirs, ours)
    return ours, theirs


def copy(theirs, ours):
    ours.model.embed_tokens.weight.copy_(theirs.get_input_embeddings().weight)
    ours.lm_head.weight.copy_(theirs.get_output_embeddings().weight)
    if ours.lm_head.bias is not None:
        ours.lm_head.bias.zero_()
    take(ours.model.norm, theirs.gpt_neox.final_layer_norm)
    for own, other in zip(ours.model.layers, theirs.gpt_neox.layers, strict=True):
        take(own.attention_norm, other.input_layernorm)
        take(own.feed_forward_norm, other.post_attention_layernorm)
        for name in ("weight", "bias"):  # theirs has q, k and v of one head side by side
            joined = getattr(other.attention.query_key_value, name)
            apart = joined.unflatten(0, (HEADS, 3, WIDTH // HEADS)).transpose(0, 1).flatten(0, 2)
            getattr(own.attention.query_key_value, name)[0].copy_(apart)
        take(own.attention.output, other.attention.dense)
        take(own.feed_forward.inner, other.mlp.dense_h_to_4h)
        take(own.feed_forward.outer, other.mlp.dense_4h_to_h)


def take(own, other):
    own.weight[0].copy_(other.weight)
    own.bias[0].copy_(other.bias)


def test_logits_and_cached_logits_are_theirs(pair):
    ours, theirs = pair
    ids = torch.randint(2, VOCAB, (2, T), generator=torch.Generator().manual_seed(1))
    expected = theirs(ids).logits
    assert_close(ours(ids).logits, expected, 1e-4)
    start = ours(ids[:, :-2])
    rest = ours(ids[:, -2:], past_key_values=start.past_key_values)
    assert_close(rest.logits, expected[:, -2:], 1e-4)
    ours.model.rotary.theta = 100.0
    assert_differs(ours(ids).logits, expected)


def test_greedy_text_is_theirs(pair):
    ours, theirs = pair
    ids = torch.tensor([[3, 4, 5]])
    options = {"max_new_tokens": 12, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}
    assert ours.generate(ids, **options).tolist() == theirs.generate(ids, **options).tolist()
