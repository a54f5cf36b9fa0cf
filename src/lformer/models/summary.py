"""What a model costs before it is built: parameters, multiply-adds, memory, beside the dense model of its width."""

import copy
import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from lformer.models.base import LFormerPreTrainedModel
from lformer.models.classification import LFormerForSequenceClassification
from lformer.models.configuration import LFormerConfig
from lformer.models.language import LFormerForCausalLM
from lformer.models.translation import LFormerForConditionalGeneration
from lformer.nn.folding import slice_width

# The first part whose word is in a parameter's name owns it.
PARTS = {
    "embed_tokens": "token embedding",
    "positions": "positions",
    "transform": "transforms",
    "norm": "norms",
    "attention": "attention",
    "feed_forward": "feed-forward",
    "classifier": "head",
    "lm_head": "head",
}
NOT_IN_STACK = ("token embedding", "head")


@dataclass(frozen=True)
class Costs:
    """Of one model, for one sequence of `length` tokens."""

    parameters: dict[str, int]
    """By part, biases included; a tied head counts once, with the embedding."""
    multiply_adds: dict[str, int]
    """By row of the paper's complexity table, for the whole sequence, all layers; a FLOP count is twice this."""
    weight_bytes: int
    """In float32."""
    activation_bytes: int
    """What autograd keeps of one sequence for the backward pass, in float32, with torch's fused attention."""

    @property
    def total_parameters(self) -> int:
        return sum(self.parameters.values())

    @property
    def stack_parameters(self) -> int:
        """Without token embedding and head: what the paper calls the encoder."""
        return sum(count for part, count in self.parameters.items() if part not in NOT_IN_STACK)


@dataclass(frozen=True)
class Summary:
    """The tensor model beside the dense one; `str` gives the table."""

    config: LFormerConfig
    length: int
    tensor: Costs
    dense: Costs

    def rows(self) -> list[tuple[str, float, float]]:
        """Name, tensor, dense."""
        tensor, dense = self.tensor, self.dense
        parts = [(f"parameters: {part}", tensor.parameters, dense.parameters, part) for part in tensor.parameters]
        flops = [(f"MACs/token: {row}", tensor.multiply_adds, dense.multiply_adds, row) for row in tensor.multiply_adds]
        rows: list[tuple[str, float, float]] = [(name, a[key], b.get(key, 0)) for name, a, b, key in parts]
        rows.append(("parameters: encoder", tensor.stack_parameters, dense.stack_parameters))
        rows.append(("parameters: total", tensor.total_parameters, dense.total_parameters))
        rows += [(name, a[key] / self.length, b.get(key, 0) / self.length) for name, a, b, key in flops]
        totals = [sum(costs.multiply_adds.values()) / self.length for costs in (tensor, dense)]
        rows.append(("MACs/token: total", totals[0], totals[1]))
        rows.append(("weights, float32 (MB)", tensor.weight_bytes / 1e6, dense.weight_bytes / 1e6))
        activations = [costs.activation_bytes / 1e6 for costs in (tensor, dense)]
        rows.append(("activations, training, one sequence (MB)", activations[0], activations[1]))
        return rows

    def __str__(self) -> str:
        name = f"T{self.config.tube_length} ({self.config.transform})"
        lines = [f"{'T=' + str(self.length):<44}{name:>16}{'dense':>16}{'ratio':>8}"]
        for row, tensor, dense in self.rows():
            form = ",.1f" if "(MB)" in row else ",.0f"
            ratio = f"{tensor / dense:.3f}" if dense else "-"
            lines.append(f"{row:<44}{tensor:>16{form}}{dense:>16{form}}{ratio:>8}")
        return "\n".join(lines)


def summarize(config: LFormerConfig, length: int | None = None) -> Summary:
    """Costs of the model that the configuration describes, and of the dense one: attention, full matrices of its own in
    every layer, tube_length=1.
    """
    length = length or config.max_position_embeddings
    if length < 1:
        raise ValueError(f"summary: length={length} must be at least 1")
    dense = copy.deepcopy(config)
    dense.tube_length, dense.transform, dense.interleave = 1, "identity", False
    dense.feed_forward_fold = "same"
    dense.share_layers, dense.token_mixing, dense.linear_rank = False, "attention", None
    # Heads change neither parameters nor multiply-adds; as many as fit where D has been padded for the slices.
    dense.num_attention_heads = max(h for h in range(1, dense.num_attention_heads + 1) if dense.hidden_size % h == 0)
    return Summary(config, length, _costs(config, length), _costs(dense, length))


def _costs(config: LFormerConfig, length: int) -> Costs:
    config = copy.deepcopy(config)
    config.attention_probs_dropout_prob = 0.0  # the CPU's fused attention has none; a GPU's keeps no map for it
    with torch.device("meta"):  # shapes only: a summary of a large model takes no memory
        model = _model(config)
    parameters = _parameters(model)
    with FakeTensorMode(allow_non_fake_inputs=True):  # still shapes only, but with the CPU's choice of attention
        activations = _activation_bytes(model.to_empty(device="cpu"), config, length)
    return Costs(parameters, multiply_adds(config, length), 4 * sum(parameters.values()), activations)


def multiply_adds(config: LFormerConfig, length: int) -> dict[str, int]:
    """The paper's table "Per-layer FLOPs", for `length` tokens and all layers. paper: Sec. computational complexity.

    The transforms are P x P products here, P multiply-adds a number, where the paper writes log p. A complex slice
    (DFT) costs four real products for the two channels that hold it. An encoder-decoder counts `length` tokens on each
    side.
    """
    layer = config.layer_config()
    p, m, f = layer.tube_length, layer.slice_size, layer.slice_intermediate_size
    inner = 2 * f if config.gated else f
    selves, crosses, feed_forwards = _sublayers(config)
    attentions = selves + crosses
    width = p * m

    def product(columns: int, rows: int) -> int:
        """A linear map on all tokens and slices; a complex slice costs two real ones more."""
        rank = layer.linear_rank
        return length * (p + 2 * layer.num_complex) * (columns * rows if rank is None else rank * (columns + rows))

    projections = selves * product(m, 3 * m) + crosses * (product(m, m) + product(m, 2 * m))
    if config.paper_counts:
        projections += attentions * 3 * product(m, m)
    rows = {
        "Q, K, V projections": projections,
        "scores": attentions * length**2 * width,
        "scores x V": attentions * length**2 * width,
        "output projection": attentions * product(m, m),
        "feed-forward": feed_forwards * (product(m, inner) + product(f, m)),
        "transforms": _transform_multiply_adds(config, length),
        "head": _head_multiply_adds(config, length),
    }
    if config.token_mixing == "fourier":
        # A fast Fourier transform of n complex numbers takes about 5 n log2(n) operations, half as many multiply-adds.
        rows["Fourier mixing"] = round(config.num_hidden_layers * 2.5 * length * width * math.log2(m * length))
    return rows


def _sublayers(config: LFormerConfig) -> tuple[int, int, int]:
    """How many self-attentions, cross-attentions and feed-forward networks there are in all layers."""
    decoder = (config.num_decoder_layers or 0) if config.is_encoder_decoder else 0
    layers = config.num_hidden_layers + decoder
    return (0 if config.token_mixing == "fourier" else layers), decoder, layers


def _transform_multiply_adds(config: LFormerConfig, length: int) -> int:
    layer = config.layer_config()
    p = layer.tube_length
    if layer.transform == "identity" or p == 1:
        return 0
    one = length * p * p * layer.slice_size
    selves, crosses, feed_forwards = _sublayers(config)
    if config.transform_scope == "sublayer":
        count = 2 * (selves + crosses + feed_forwards)
    else:
        count = 2 * feed_forwards
    total = (count + crosses) * one  # and L of the memory
    if config.attention_domain == "original":
        total += 4 * (selves + crosses) * one  # L^-1 of queries, keys and values, and L of what the heads give
    if config.activation_domain == "original":
        widths = 3 if config.gated else 2  # L^-1 of all that the inner projection gives, and L of what is left
        total += widths * feed_forwards * length * p * p * layer.slice_intermediate_size
    if config.output_projection == "tensor" and (config.is_decoder or config.is_encoder_decoder):
        total += one + length * p * p * slice_width(config.vocab_size, p)
    return total


def _head_multiply_adds(config: LFormerConfig, length: int) -> int:
    if not (config.is_decoder or config.is_encoder_decoder):
        return config.hidden_size * (config.num_labels or 0)
    if config.output_projection == "dense":
        return length * config.hidden_size * config.vocab_size
    p = config.tube_length
    return length * p * config.slice_size * slice_width(config.vocab_size, p)


def _model(config: LFormerConfig) -> LFormerPreTrainedModel:
    if config.is_encoder_decoder:
        return LFormerForConditionalGeneration(config)
    return LFormerForCausalLM(config) if config.is_decoder else LFormerForSequenceClassification(config)


def _parameters(model: nn.Module) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for name, parameter in model.named_parameters():
        counts[next(part for word, part in PARTS.items() if word in name)] += parameter.numel()
    return {part: counts[part] for part in dict.fromkeys(PARTS.values()) if counts[part]}


def _activation_bytes(model: nn.Module, config: LFormerConfig, length: int) -> int:
    ids = torch.zeros(1, length, dtype=torch.long)
    inputs: dict[str, Any] = {"input_ids": ids, "labels": ids if config.is_decoder else ids[:, 0]}
    if config.is_encoder_decoder:
        inputs = {"input_ids": ids, "decoder_input_ids": ids, "use_cache": False}
    weights = {parameter.untyped_storage()._cdata for parameter in model.parameters()}
    kept: dict[int, int] = {}  # views share a storage: each counts once

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in weights:
            kept[storage._cdata] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        model.train()(**inputs)
    return sum(kept.values())
