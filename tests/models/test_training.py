"""What training needs: seeds, autocast, checkpointing, and a start that is as the table says."""

import pytest
import torch

from lformer.nn import LLinear, coupling

from .cases import (
    BASE,
    CAUSAL,
    CLASSIFIER,
    HEADS,
    MASKED,
    SEQ2SEQ,
    VARIANTS,
    assert_close,
    assert_differs,
    make_config,
    make_ids,
    make_inputs,
    make_model,
    output_of,
)

over_heads = pytest.mark.parametrize("kind", HEADS)
over_variants = pytest.mark.parametrize("variant", VARIANTS)


def gradients(model, kind, seed=0):
    inputs = make_inputs(kind)
    labels = torch.tensor([0, 1]) if kind is CLASSIFIER else make_ids(seed=3)
    inputs.pop("decoder_input_ids", None)
    torch.manual_seed(seed)
    model.zero_grad()
    model(**inputs, labels=labels).loss.backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@over_heads
@over_variants
def test_every_parameter_learns(kind, variant):
    model = make_model(kind, **VARIANTS[variant])
    grads = gradients(model, kind)
    assert grads.keys() == dict(model.named_parameters()).keys()
    assert all(torch.isfinite(grad).all() for grad in grads.values())
    assert all(grad.abs().max() > 0 for grad in grads.values())


@over_heads
@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_checkpointing_changes_no_gradient(kind, dropout, reentrant):
    model = make_model(kind, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout).train()
    expected = gradients(model, kind)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": reentrant})
    calls = []
    stack = model.decoder if kind is SEQ2SEQ else model.model
    hook = stack.layers[0].register_forward_pre_hook(lambda *_: calls.append(1))
    actual = gradients(model, kind)
    hook.remove()
    assert len(calls) == 2  # forward, and again in backward
    assert actual.keys() == expected.keys()
    for name, grad in expected.items():
        assert_close(actual[name], grad)
    other = gradients(model, kind, seed=1)
    same = all(torch.equal(other[name], grad) for name, grad in actual.items())
    assert same == (dropout == 0.0)  # and dropout was on


@over_heads
@over_variants
def test_autocast_to_bfloat16(kind, variant):
    model = make_model(kind, dtype=torch.float32, **VARIANTS[variant])
    expected = output_of(model, **make_inputs(kind))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = output_of(model, **make_inputs(kind))
        output.float().square().mean().backward()
    assert output.dtype == torch.bfloat16
    assert_close(output.float(), expected, 0.1)
    assert all(p.grad.dtype == torch.float32 and torch.isfinite(p.grad).all() for p in model.parameters())


@over_heads
def test_seeds(kind):
    a, b, c = (make_model(kind, seed=seed, hidden_dropout_prob=0.2) for seed in (0, 0, 1))
    assert all(torch.equal(x, y) for x, y in zip(a.parameters(), b.parameters(), strict=True))
    assert not all(torch.equal(x, y) for x, y in zip(a.parameters(), c.parameters(), strict=True))
    inputs = make_inputs(kind)
    torch.manual_seed(0)
    first = output_of(a.train(), **inputs)
    other = output_of(a, **inputs)
    torch.manual_seed(0)
    assert torch.equal(output_of(b.train(), **inputs), first)
    assert_differs(other, first)
    assert torch.equal(output_of(a.eval(), **inputs), output_of(b.eval(), **inputs))


@pytest.mark.parametrize("transform", ["dct", "dft"])
def test_weights_start_as_the_table_says(transform):
    torch.manual_seed(0)
    model = MASKED(make_config(hidden_size=256, vocab_size=500, transform=transform, intermediate_size=1024))
    embedding = model.model.embed_tokens.weight
    assert embedding.std().item() == pytest.approx(1 / 16, rel=0.05)
    assert embedding[0].abs().max() == 0  # padding
    for module in model.modules():
        if isinstance(module, LLinear):
            expected = (3 * module.weight.shape[-1]) ** -0.5
            energy = module.weight.detach().square().mean(dim=(1, 2)).sqrt()
            complex_ = module.tube_length - 2 * module.num_complex
            assert energy[:complex_].tolist() == pytest.approx([expected] * complex_, rel=0.1)
            rest = module.tube_length - complex_
            assert energy[complex_:].tolist() == pytest.approx([expected / 2**0.5] * rest, rel=0.1)
            assert module.bias.abs().max() == 0
    norm = model.model.layers[0].attention_norm
    assert (norm.weight == 1).all()
    assert (norm.bias == 0).all()


@pytest.mark.parametrize("kind", [BASE, CAUSAL, SEQ2SEQ])
def test_coupling_of_a_whole_model(kind):
    inputs = make_inputs(kind)
    inputs["attention_mask"] = torch.tensor([[1] * 6, [1] * 4 + [0] * 2])
    block, sublayer = (make_model(kind, transform_scope=scope) for scope in ("block", "sublayer"))
    shares = coupling(block, inputs), coupling(sublayer, inputs)
    assert len(shares[0]) == len(shares[1]) == (4 if kind is SEQ2SEQ else 2)
    assert max(shares[0]) < 1e-10
    assert min(shares[1]) > 0.02
