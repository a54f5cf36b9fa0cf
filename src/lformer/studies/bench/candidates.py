"""Who takes part: the dense baseline, the tensor layer in every variant, and what others offer.

A candidate is a recipe; nothing is built before its turn. One that cannot be built here raises, and becomes a row
that says why. All are post-norm with relu and a feed-forward size of 4 D. The models have no positions and no
embedding scale, so that a stack of layers is compared with a stack of layers; folding and unfolding belong to the
tensor model.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers import BertConfig, BertModel
from transformers.models.bert.modeling_bert import BertLayer

from lformer.models import LFormerConfig, LFormerModel
from lformer.nn import LayerConfig, LEncoderLayer
from lformer.settings import UserError
from lformer.studies.bench.dense import DenseLayer, DenseStack
from lformer.studies.bench.machine import Machine
from lformer.studies.bench.shapes import Case

EAGER = "eager"
COMPILE_MODES = ("default", "max-autotune-no-cudagraphs")
BACKENDS = ("torch", "triton", "auto")
VOCABULARY = 8  # not used: the models are given embeddings


@dataclass(frozen=True)
class Built:
    """A candidate on its device."""

    module: nn.Module
    call: Callable[[Tensor], Tensor]
    """The module as it is run: compiled or not, input to output."""
    input_shape: tuple[int, ...]
    parameters: int
    """Of the layers, without embeddings."""


@dataclass(frozen=True)
class Candidate:
    """Name, what it is, and how to build it."""

    family: str
    """One of "dense", "tensor" and "peer"."""
    name: str
    backend: str
    mode: str
    """Either "eager" or a mode of torch.compile."""
    build: Callable[[], Built]
    tube_length: int = 1
    capture: bool = True
    """Whether a CUDA graph is asked for."""
    note: str = ""


@dataclass(frozen=True)
class Choice:
    """What of the possible candidates is wanted."""

    dense_modes: tuple[str, ...] = (EAGER, "default")
    backends: tuple[str, ...] | None = None
    """None: "torch" and "auto", with "triton" on a GPU."""
    compile: bool | None = None
    """The tensor side: compiled, not, or both. None: both, but Triton kernels without the compiler."""
    peers: bool = True

    def __post_init__(self) -> None:
        _all_of("--dense-modes", self.dense_modes, (EAGER, *COMPILE_MODES))
        _all_of("--backends", self.backends or (), BACKENDS)

    def variants(self, machine: Machine) -> Iterator[tuple[str, str]]:
        """Backend and mode of every tensor candidate."""
        for backend in self.backends or (BACKENDS if machine.is_cuda else ("torch", "auto")):
            if self.compile is None:
                modes = (EAGER,) if backend == "triton" else (EAGER, "default")
            else:
                modes = ("default",) if self.compile else (EAGER,)
            for mode in modes:
                yield backend, mode


def candidates(case: Case, machine: Machine, choice: Choice) -> list[Candidate]:
    """All that take part at a shape, the dense baseline first."""
    found = [
        Candidate("dense", "dense", "torch", compiler, partial(_dense, case, machine, compiler))
        for compiler in choice.dense_modes
    ]
    for p in case.tube_lengths:
        for backend, mode in choice.variants(machine):
            build = partial(_tensor, case, machine, p, backend, mode)
            found.append(Candidate("tensor", f"tensor p={p}", backend, mode, build, tube_length=p))
    if choice.peers:
        found += _peers(case, machine, any(mode != EAGER for mode in choice.dense_modes))
    return found


def _peers(case: Case, machine: Machine, compiled: bool) -> Iterator[Candidate]:
    kind = "TransformerEncoderLayer" if case.kind == "layer" else "TransformerEncoder"
    note = f"nn.{kind}; its forward pass takes torch's fast path, its training step cannot"
    for capture in (False, True) if machine.is_cuda else (False,):
        build = partial(_torch, case, machine)
        yield Candidate("peer", "torch.nn", "torch", EAGER, build, capture=capture, note=note)
    mode = "default" if compiled else EAGER
    note = "BertLayer" if case.kind == "layer" else "BertModel, with its positions and the norm of its embeddings"
    yield Candidate("peer", "BERT", "torch", mode, partial(_bert, case, machine, mode), note=f"transformers' {note}")


def _dense(case: Case, machine: Machine, mode: str) -> Built:
    sizes = (case.hidden_size, case.heads, case.intermediate_size, case.dropout)
    module = DenseLayer(*sizes) if case.kind == "layer" else DenseStack(case.layers, *sizes)
    return _finish(case, machine, module, module, mode)


def _tensor(case: Case, machine: Machine, p: int, backend: str, mode: str) -> Built:
    options: dict[str, Any] = {
        "hidden_size": case.hidden_size,
        "num_attention_heads": case.heads,
        "intermediate_size": case.intermediate_size,
        "tube_length": p,
        "hidden_dropout_prob": case.dropout,
        "attention_probs_dropout_prob": case.dropout,
        "backend": backend,
    }
    if case.kind == "layer":
        config = LayerConfig(**options)
        layer = LEncoderLayer(config)
        shape = (p, case.batch, case.length, config.slice_size)
        return _finish(case, machine, layer, layer, mode, shape=shape, pick=lambda output: output[0])
    model = LFormerModel(
        LFormerConfig(
            vocab_size=VOCABULARY,
            num_hidden_layers=case.layers,
            max_position_embeddings=case.length,
            positional="none",
            scale_embedding=False,
            **options,
        )
    )
    return _finish(case, machine, model, model.layers, mode, argument="inputs_embeds", pick=_last_hidden_state)


def _torch(case: Case, machine: Machine) -> Built:
    module: nn.Module = nn.TransformerEncoderLayer(
        case.hidden_size, case.heads, case.intermediate_size, case.dropout, batch_first=True
    )
    if case.kind == "model":
        assert isinstance(module, nn.TransformerEncoderLayer)
        module = nn.TransformerEncoder(module, case.layers, enable_nested_tensor=False)
    return _finish(case, machine, module, module, EAGER)


def _bert(case: Case, machine: Machine, mode: str) -> Built:
    config = BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=case.hidden_size,
        num_hidden_layers=case.layers,
        num_attention_heads=case.heads,
        intermediate_size=case.intermediate_size,
        hidden_act="relu",
        hidden_dropout_prob=case.dropout,
        attention_probs_dropout_prob=case.dropout,
        max_position_embeddings=case.length,
    )
    config._attn_implementation = "sdpa"
    if case.kind == "layer":
        layer = BertLayer(config)
        return _finish(case, machine, layer, layer, mode, fullgraph=False)
    model = BertModel(config, add_pooling_layer=False)
    options: dict[str, Any] = {"argument": "inputs_embeds", "pick": _last_hidden_state, "fullgraph": False}
    return _finish(case, machine, model, model.encoder, mode, **options)


def _last_hidden_state(output: Any) -> Tensor:
    return output.last_hidden_state


def _finish(
    case: Case,
    machine: Machine,
    module: nn.Module,
    layers: nn.Module,
    mode: str,
    *,
    shape: tuple[int, ...] | None = None,
    argument: str | None = None,
    pick: Callable[[Any], Tensor] = lambda output: output,
    fullgraph: bool = True,
) -> Built:
    """The module in its place and number format, compiled where asked, as a function of one tensor."""
    module.to(device=machine.device, dtype=machine.dtype)
    run: Callable[..., Any] = module
    if mode != EAGER:
        machine.require_compiler()
        run = torch.compile(module, mode=mode, dynamic=False, fullgraph=fullgraph)

    def call(x: Tensor) -> Tensor:
        return pick(run(x) if argument is None else run(**{argument: x}))

    size = sum(parameter.numel() for parameter in layers.parameters())
    return Built(module, call, shape or (case.batch, case.length, case.hidden_size), size)


def _all_of(option: str, words: Iterable[str], known: tuple[str, ...]) -> None:
    for word in words:
        if word not in known:
            raise UserError(f"{option} {word}: there are {', '.join(known)}")
