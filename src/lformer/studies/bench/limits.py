"""How fast a layer could be: its matrix work and its memory traffic, against what the machine can do.

FLOPs: two for each multiply-add of the projections, the feed-forward network, the scores and the scores times V
(`lformer.models.summary.multiply_adds`); all keys count for all queries. A training step has three times as many,
since the backward pass has two products for each one of the forward pass. Not counted: norms, softmax, activations,
dropout, the P x P transforms (a few additions a number, pointwise work like a norm), and scores that fused attention
computes again in its backward pass.

Bytes: a layer is cut into passes, one for each product (attention is one), with all pointwise work, norms and
transforms inside the pass before or after them. Every pass reads and writes each of its activations once, and nothing
is served from a cache. Weights are read once by the forward pass; the backward pass reads them once more and writes a
gradient of their size. FORWARD and BACKWARD below list the passes. Code that joins two passes, for example keeps the
hidden activations of the feed-forward network on the chip, moves less than this and can exceed the limit; no such
code is assumed. At small shapes the activations fit into the L2 cache (about 60 MB on an H200), where traffic is
cheaper than in the copy that measures the bandwidth: inputs are not rotated, since in a network too a layer finds its
input in that cache.

The limit of a candidate is max(FLOPs / measured matrix rate, bytes / measured copy bandwidth); its share is this time
over the measured one.
"""

from dataclasses import dataclass

from lformer.models import LFormerConfig
from lformer.models.summary import multiply_adds
from lformer.studies.bench.machine import Ceilings
from lformer.studies.bench.shapes import Case

MEASURES = ("forward", "training")
NOT_MATRIX_WORK = ("transforms", "head")

# Numbers read and written for each token, in units of (hidden size, feed-forward size).
FORWARD = {
    "Q, K, V projections: read x, write q, k, v": (4, 0),
    "attention: read q, k, v, write y": (4, 0),
    "output projection, residual, norm: read y, x, write x'": (3, 0),
    "inner projection, relu: read x', write h": (1, 1),
    "outer projection, residual, norm: read h, x', write z": (2, 1),
}
BACKWARD = {
    "second norm: read dz, z, write ds": (3, 0),
    "outer projection, relu: read ds, h, write dh": (1, 2),
    "outer weights: read ds, h": (1, 1),
    "inner projection, residual, first norm: read dh, ds, x', write dr": (3, 1),
    "inner weights: read dh, x'": (1, 1),
    "output projection: read dr, write dy": (2, 0),
    "output weights: read dr, y": (2, 0),
    "attention: read q, k, v, y, dy, write dq, dk, dv": (8, 0),
    "Q, K, V projections, residual: read dq, dk, dv, dr, write dx": (5, 0),
    "Q, K, V weights: read dq, dk, dv, x": (4, 0),
}
PASSES = {"forward": FORWARD, "training": {**FORWARD, **{f"backward: {k}": v for k, v in BACKWARD.items()}}}
PRODUCTS = {"forward": 1, "training": 3}
WEIGHT_TRAFFIC = {"forward": 1, "training": 3}


@dataclass(frozen=True)
class Work:
    """What one call has to do."""

    flops: int
    bytes: int

    def seconds(self, ceilings: Ceilings) -> float:
        """The least time that the machine needs for it."""
        return max(self.flops / ceilings.flops_per_second, self.bytes / ceilings.bytes_per_second)


def work(case: Case, tube_length: int, parameters: int, item_size: int) -> dict[str, Work]:
    """Of the forward pass and of a training step of a candidate; a dense one has a tube length of 1."""
    config = LFormerConfig(
        hidden_size=case.hidden_size,
        num_hidden_layers=case.layers,
        num_attention_heads=case.heads,
        intermediate_size=case.intermediate_size,
        tube_length=tube_length,
    )
    layer = config.layer_config()
    rows = multiply_adds(config, case.length)
    flops = 2 * case.batch * sum(count for name, count in rows.items() if name not in NOT_MATRIX_WORK)
    tokens = case.layers * case.batch * case.length
    hidden, inner = layer.padded_size, layer.slice_intermediate_size * tube_length
    found = {}
    for measure in MEASURES:
        numbers = tokens * sum(a * hidden + b * inner for a, b in PASSES[measure].values())
        traffic = item_size * (numbers + WEIGHT_TRAFFIC[measure] * parameters)
        found[measure] = Work(PRODUCTS[measure] * flops, traffic)
    return found
