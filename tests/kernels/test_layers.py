"""Whole layers and models with the kernels on and off: the same outputs, gradients and training."""

import re
from types import SimpleNamespace

import pytest
import torch

from lformer import LFormerConfig, LFormerForCausalLM, LFormerForSequenceClassification
from lformer.kernels import backend as backend_module
from lformer.nn import LDecoderLayer, LEncoderLayer, LLinear, TubeTransform

from .cases import BFLOAT16, DEVICE, assert_same, draw

SMALL = {"hidden_size": 24, "num_attention_heads": 4, "tube_length": 4, "hidden_dropout_prob": 0.0}
SMALL |= {"attention_probs_dropout_prob": 0.0, "intermediate_size": 32, "vocab_size": 50, "num_hidden_layers": 2}
VARIANTS = {
    "paper": {},
    "pre": {"norm_placement": "pre"},
    "gelu": {"hidden_act": "gelu"},
    "block": {"transform_scope": "block"},
    "block pre": {"transform_scope": "block", "norm_placement": "pre"},
    "identity": {"transform": "identity"},
    "learned": {"transform": "learned"},
    "learned pre": {"transform": "learned-orthogonal", "norm_placement": "pre"},
    "original": {"activation_domain": "original"},
    "heads original": {"attention_domain": "original"},
    "L-products": {
        "attention_domain": "original",
        "activation_domain": "original",
        "transform": "learned",
        "interleave": True,
        "hidden_size": 32,
        "norm_placement": "pre",
        "hidden_act": "gelu",
    },
    "sigma original, gated": {"activation_domain": "original", "gated": True, "hidden_act": "silu"},
    "interleave": {"interleave": True, "hidden_size": 32},
    "rope": {"positional": "rope", "hidden_size": 32},
    "rope, heads original": {
        "positional": "rope",
        "hidden_size": 32,
        "attention_domain": "original",
        "transform": "learned",
    },
    "counts": {"paper_counts": True},
    "one slice": {"tube_length": 1},
    "three slices": {"tube_length": 3, "num_attention_heads": 3},
    "padded": {"hidden_size": 22, "num_attention_heads": 4},
}


def both(kind, variant, **arguments):
    """The same module twice, with and without the kernels."""
    modules = []
    for backend in ("torch", "triton"):
        torch.manual_seed(0)
        modules.append(kind(LFormerConfig(**{**SMALL, **variant}, backend=backend), **arguments).to(DEVICE))
    for name, parameter in modules[0].named_parameters():  # norms and biases start as ones and zeros
        if parameter.ndim <= 2:
            parameter.data += 0.1 * draw(*parameter.shape, dtype=torch.float32, seed=len(name)).detach()
    modules[1].load_state_dict(modules[0].state_dict())
    return modules


def everything(module, *inputs, **options):
    outputs = module(*inputs, **options)
    first = outputs[0]
    weight = draw(*first.shape, dtype=torch.float32, seed=9).detach()
    parameters = dict(module.named_parameters())
    gradients = torch.autograd.grad((first * weight).sum(), list(parameters.values()), allow_unused=True)
    # A bias of the keys moves all scores of a query alike: its gradient is rounding alone.
    found = {
        name: g
        for name, g in zip(parameters, gradients, strict=True)
        if g is not None and not name.endswith("attention.again.1.bias")
    }
    return {"output": first.detach(), **found}


@pytest.mark.parametrize("name", VARIANTS)
def test_encoder_layer(name):
    plain, fast = both(LEncoderLayer, VARIANTS[name])
    x = draw(2, 9, plain.config.hidden_size, dtype=torch.float32)
    mask = torch.ones(2, 1, 1, 9, dtype=torch.bool, device=DEVICE)
    mask[1, ..., 6:] = False
    if name.startswith("rope"):
        pytest.skip("a layer alone has no positions; the model below does")
    assert_same(everything(fast, x, mask), everything(plain, x, mask), 2e-5)


@pytest.mark.parametrize("name", ["paper", "pre", "interleave"])
def test_decoder_layer_with_memory(name):
    plain, fast = both(LDecoderLayer, VARIANTS[name], cross_attention=True)
    d = plain.config.hidden_size
    x, memory = draw(2, 7, d, dtype=torch.float32), draw(2, 5, d, dtype=torch.float32)
    assert_same(everything(fast, x, memory), everything(plain, x, memory), 2e-5)


@pytest.mark.parametrize("name", ["paper", "pre", "interleave"])
@pytest.mark.parametrize("size", [(2, 0), (0, 4)])
def test_nothing_through_a_layer(size, name):
    for layer in both(LEncoderLayer, VARIANTS[name]):
        x = torch.zeros(*size, layer.config.hidden_size, device=DEVICE, requires_grad=True)
        y = layer(x)[0]
        y.sum().backward()
        assert y.shape == x.grad.shape == x.shape


@pytest.mark.parametrize("name", VARIANTS)
def test_model(name):
    """A stack, where layers hand transformed activations to each other."""
    plain, fast = both(LFormerForSequenceClassification, VARIANTS[name])
    ids = torch.randint(1, 50, (2, 9), generator=torch.Generator().manual_seed(0)).to(DEVICE)
    mask = torch.ones_like(ids)
    mask[1, 5:] = 0
    assert_same(
        everything(fast, ids, attention_mask=mask, return_dict=False),
        everything(plain, ids, attention_mask=mask, return_dict=False),
        2e-5,
    )


# Under the interpreter a step takes 0.6 s, whatever its size: fewer of them, and larger ones.
STEPS, RATE = (50, 3e-3) if DEVICE == "cuda" else (15, 1e-2)


def losses(model, autocast=None):
    """Training on a task that a model can learn: the next token of a cycle with noise."""
    generator = torch.Generator().manual_seed(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    found = []
    for _ in range(STEPS):
        start = torch.randint(0, 50, (4, 1), generator=generator)
        ids = ((start + 7 * torch.arange(12)) % 50).to(DEVICE)
        with torch.autocast(DEVICE, dtype=autocast, enabled=autocast is not None):
            loss = model(input_ids=ids, labels=ids, use_cache=False).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return torch.tensor(found)


def test_training():
    plain, fast = both(LFormerForCausalLM, {"is_decoder": True, "num_hidden_layers": 1})
    wanted, found = losses(plain), losses(fast)
    assert wanted[-1] < wanted[0] - 1, "it learns"
    assert torch.allclose(found, wanted, rtol=1e-3)


@pytest.mark.parametrize("dtype", [torch.float16, BFLOAT16])
def test_training_in_mixed_precision(dtype):
    """Under the interpreter of fewer slices, too."""
    p = 4 if DEVICE == "cuda" else 2
    options = {"is_decoder": True, "num_hidden_layers": 1, "tube_length": p, "num_attention_heads": p}
    plain, fast = both(LFormerForCausalLM, options)
    wanted, found = losses(plain, dtype), losses(fast, dtype)
    assert wanted[-1] < wanted[0] - 1, "it learns"
    assert torch.allclose(found, wanted, rtol=1e-2 if dtype == torch.float16 else 5e-2)


def test_training_with_dropout_runs_and_differs():
    _, fast = both(LFormerForSequenceClassification, {"hidden_dropout_prob": 0.3, "attention_probs_dropout_prob": 0.3})
    ids = torch.randint(1, 50, (2, 9)).to(DEVICE)
    fast.train()
    first, second = fast(ids).logits, fast(ids).logits
    assert not torch.equal(first, second)
    assert torch.isfinite(first).all()
    fast.eval()
    assert torch.equal(fast(ids).logits, fast(ids).logits)


def test_the_dft_has_no_kernels():
    """An explicit request says so; "auto" takes torch."""
    with pytest.raises(ValueError, match=r"backend='triton': slices of the DFT are complex.*use backend='auto'"):
        LEncoderLayer(LFormerConfig(**SMALL, transform="dft", backend="triton")).to(DEVICE)(
            draw(1, 4, 24, dtype=torch.float32)
        )
    layer = LEncoderLayer(LFormerConfig(**SMALL, transform="dft")).to(DEVICE)
    assert layer(draw(1, 4, 24, dtype=torch.float32))[0].shape == (1, 4, 24)


OUTSIDE = {  # what takes an operation of a layer out of its kernel
    "qk_norm": ({"qk_norm": True}, 9, "attention .*: qk_norm is between"),
    "paper_counts": ({"paper_counts": True}, 9, "attention .*: paper_counts"),
    "many tokens": ({}, 129, "attention .*: it takes sequences of up to 128 tokens"),
    "gated": ({"gated": True}, 9, "activation .*: gated=True"),
    "silu": ({"hidden_act": "silu"}, 9, "activation .*: hidden_act='silu'"),
    "rank": ({"linear_rank": 2}, 9, "activation .*: its weights are quantised or of low rank"),
}


@pytest.fixture
def said(caplog, monkeypatch):
    """What the kernels' dispatch says from here on; torch's compiler writes into the same log."""
    monkeypatch.setattr(backend_module, "_said", set())
    return lambda: [record.getMessage() for record in caplog.records if record.name == backend_module.__name__]


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", OUTSIDE)
def test_what_is_outside_a_kernel_is_said_once(name, compiled, said):
    """Also where the compiler traces the layer, as one graph."""
    options, length, message = OUTSIDE[name]
    plain, fast = both(LEncoderLayer, options)
    x = draw(1, length, 24, dtype=torch.float32).detach()
    torch._dynamo.reset()
    call = torch.compile(fast, fullgraph=True, backend="eager") if compiled else fast
    plain(x)
    assert not said(), "torch was asked for"
    assert torch.equal(call(x)[0], call(x)[0])
    (found,) = said()
    assert re.search(message, found)


def test_masks_maps_rotations_and_caches_are_outside_the_kernel_of_attention(said):
    _, fast = both(LFormerForCausalLM, {"is_decoder": True, "positional": "rope", "hidden_size": 32})
    ids = torch.randint(1, 50, (2, 5), generator=torch.Generator().manual_seed(0)).to(DEVICE)
    fast(ids, use_cache=False)
    fast(ids, use_cache=True)
    layer = both(LDecoderLayer, {}, cross_attention=True)[1]
    x = draw(2, 5, 24, dtype=torch.float32)
    layer(x, x)
    layer(x, x, output_attentions=True)
    mask = torch.ones(2, 1, 5, 5, dtype=torch.bool, device=DEVICE).tril()
    layer(x, x, mask)
    found = {message.split(": ")[1] for message in said()}
    assert found == {
        "rotary positions come before it, in one pass of tube_rotary",
        "keys and values come from a second tensor",
        "its maps are asked for",
        "the mask is not one of keys alone",
    }


@pytest.mark.parametrize(
    "kind", [lambda **options: LLinear(8, 8, transform=None, **options), lambda **options: TubeTransform(4, **options)]
)
def test_a_backend_that_there_is_not(kind):
    with pytest.raises(ValueError, match="backend='trition' is not one of 'auto', 'torch', 'triton'"):
        kind(backend="trition")


def test_a_machine_that_cannot(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    config = LFormerConfig(**SMALL, backend="triton")
    with pytest.raises(
        ValueError, match=r"backend='triton': there is no CUDA device .*; use backend='auto' or 'torch'"
    ):
        LFormerForSequenceClassification(config)
    monkeypatch.setattr(backend_module, "HAS_TRITON", False)
    with pytest.raises(ValueError, match=r"Triton is not installed \(pip install 'lformer\[triton\]'\)"):
        LEncoderLayer(config)
    with pytest.raises(ValueError, match="Triton is not installed"):
        LLinear(8, 8, transform=None, backend="triton")


def test_tensors_that_the_kernels_do_not_take(monkeypatch):
    layer = LEncoderLayer(LFormerConfig(**SMALL, backend="triton")).to(DEVICE)
    with pytest.raises(ValueError, match=r"the kernels have no torch\.float64"):
        layer.double()(draw(1, 4, 24, dtype=torch.float64))
    if DEVICE == "cpu":
        with pytest.raises(ValueError, match="interpreter cannot multiply bfloat16"):
            layer.bfloat16()(draw(1, 4, 24, dtype=torch.bfloat16))
        monkeypatch.delenv("TRITON_INTERPRET")
        with pytest.raises(ValueError, match="the tensor is on the cpu"):
            layer.float()(draw(1, 4, 24, dtype=torch.float32))


def test_auto_is_torch_on_the_cpu():
    """Even where the interpreter is on: nobody wants it unasked."""
    x = draw(1, 4, 24, dtype=torch.float32).cpu()
    assert not backend_module.use_triton("auto", x)
    assert not backend_module.use_triton("torch", x)


@pytest.mark.parametrize("name", ["paper", "pre", "learned", "interleave", "rope, heads original"])
def test_compiles_as_one_graph(name):
    """The kernels are operations that the compiler passes through, forward and backward."""
    _, fast = both(LFormerForSequenceClassification, VARIANTS[name])
    ids = torch.randint(1, 50, (2, 9)).to(DEVICE)
    wanted = everything(fast, ids, return_dict=False)
    torch._dynamo.reset()
    compiled = torch.compile(fast, fullgraph=True, backend="aot_eager")
    found = everything(compiled, ids, return_dict=False)
    assert_same({name.removeprefix("_orig_mod."): value for name, value in found.items()}, wanted, 2e-5)


def test_compiles_once_for_all_lengths():
    _, fast = both(LFormerForSequenceClassification, {"num_hidden_layers": 1})
    torch._dynamo.reset()
    compiled = torch.compile(fast, fullgraph=True, dynamic=True, backend="aot_eager")
    with torch.no_grad(), torch._dynamo.config.patch(error_on_recompile=True):
        for batch, length in ((2, 9), (3, 33), (5, 4)):
            ids = torch.randint(1, 50, (batch, length), generator=torch.Generator().manual_seed(0)).to(DEVICE)
            assert torch.allclose(compiled(ids).logits, fast(ids).logits, atol=1e-5)


def test_second_derivatives_are_an_error():
    """And not those of something else."""
    _, fast = both(LEncoderLayer, {})
    x = draw(1, 3, 24, dtype=torch.float32)
    (first,) = torch.autograd.grad(fast(x)[0].square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="no autograd formula"):
        first.sum().backward()


def test_a_smaller_gpu(monkeypatch):
    """The size of a GPU is asked for at every call, also while the compiler traces one."""
    for size in (101_376, 232_448):
        properties = SimpleNamespace(shared_memory_per_block_optin=size)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device, properties=properties: properties)
        assert backend_module._shared_memory(0) == size

        @torch.compile(fullgraph=True, backend="eager")
        def grow(x):
            return x + 1 if backend_module._shared_memory(0) < backend_module.SHARED_MEMORY else x

        torch._dynamo.reset()
        assert grow(torch.zeros(1)).item() == (size < 232_448)

    class OnGpu:
        is_cuda, dtype, device = True, torch.float32, torch.device("cuda", 0)

    monkeypatch.setattr(backend_module, "is_interpreted", lambda: False)
    assert backend_module.use_triton("auto", OnGpu)
    monkeypatch.setattr(backend_module, "_shared_memory", lambda device: 101_376)
    with pytest.raises(ValueError, match=r"101,376 bytes of shared memory on this GPU.*use backend='auto'"):
        backend_module.use_triton("triton", OnGpu)
    assert not backend_module.use_triton("auto", OnGpu)
