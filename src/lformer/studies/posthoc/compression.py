"""Two compressions of the weights of a trained dense model: low rank matrix by matrix, and the L-SVD of a stack.

The first is layer-selective rank reduction (LASER), the second tensor reduction of stacked weights (TRAWL), there with
CP and Tucker, here with the truncated L-SVD. paper: Table "closest methods", "Post-training rank reduction" and
"Tensorized weight compression". One matrix is a stack of one, so both are one piece of code.

Shapes: N x M the weight matrices of a stack, K their number, R = min(N, M). Biases and norms are left as they are.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lformer.algebra import get_transform, lproduct, lsvd, ltranspose
from lformer.algebra.svd import fdiagonal
from lformer.algebra.transform import Transform
from lformer.algebra.transforms import TransformLike
from lformer.models import LFormerForSequenceClassification
from lformer.settings import UserError

PROJECTIONS = ("query", "key", "value")
AGAIN = tuple(f"{name} again" for name in PROJECTIONS)
ATTENTION = "attention"
# Conjugate slices of a complex transform have equal singular values up to rounding, and must be cut at the same place.
SAME = 1e-5

Site = tuple[int, str]
"""A weight matrix: the layer, counted from 0, and the part."""


def part_names(model: LFormerForSequenceClassification) -> list[str]:
    """The weight matrices of a layer: query, key, value, output, inner and outer, and those that paper_counts adds."""
    return [*_attention_parts(model), "inner", "outer"]


def reduce_rank_(model: LFormerForSequenceClassification, layer: int, part: str, rank: int) -> int:
    """Replace one weight matrix by its best approximation of that rank; returns the number of parameters saved.

    The factors of an N x M matrix have rank (N + M) parameters; where that is not fewer than N M, the matrix is kept
    as it is stored now and nothing is saved.

    >>> from lformer import LFormerConfig
    >>> sizes = {"hidden_size": 16, "intermediate_size": 64, "num_hidden_layers": 2, "vocab_size": 9}
    >>> model = LFormerForSequenceClassification(LFormerConfig(tube_length=1, **sizes))
    >>> reduce_rank_(model, layer=1, part="inner", rank=4)
    704
    """
    stack = Stack.of(model, ((layer, part),), "identity")
    return stack.put_(model, stack.keep_tubes(rank))


def truncate_stack_(
    model: LFormerForSequenceClassification,
    part: str,
    rank: int,
    transform: TransformLike = "dct",
    *,
    layer: int | None = None,
) -> int:
    """Cut the L-SVD of stacked weights to `rank` singular tubes; returns the number of parameters saved.

    The stack is that part of all layers, or with part="attention" all matrices of the attention of one `layer`. Its
    factors have K rank (N + M) parameters: the singular values are absorbed, and the transform is known.
    """
    stack = Stack.of(model, stack_sites(model, part, layer), transform)
    return stack.put_(model, stack.keep_tubes(rank))


def truncate_energy_(
    model: LFormerForSequenceClassification,
    part: str,
    fraction: float,
    transform: TransformLike = "dct",
    *,
    layer: int | None = None,
) -> int:
    """Like `truncate_stack_`, but every slice keeps what it needs of `fraction` of the energy of all (`lsvd_energy`).

    A slice of rank rho has rho (N + M) parameters, at most N M.
    """
    stack = Stack.of(model, stack_sites(model, part, layer), transform)
    return stack.put_(model, stack.keep_energy(fraction))


def stack_sites(model: LFormerForSequenceClassification, part: str, layer: int | None = None) -> tuple[Site, ...]:
    """The matrices of a stack: one part over all layers, or the attention of one layer."""
    if part != ATTENTION:
        if layer is not None:
            raise UserError(f"the stack of {part!r} is over all layers; leave out layer={layer}")
        return tuple((index, part) for index in range(len(model.model.layers)))
    if layer is None:
        raise UserError("the stack 'attention' is of one layer: give layer=")
    return tuple((layer, name) for name in _attention_parts(model))


@dataclass(frozen=True, eq=False)
class Stack:
    """Weight matrices of one shape and their L-SVD, computed once, to be cut in many ways."""

    name: str
    sites: tuple[Site, ...]
    transform: Transform
    weights: Tensor
    """(N, M, K), as trained."""
    u: Tensor
    """(N, R, K)."""
    values: Tensor
    """(R, K), the singular values of every slice of the transform domain."""
    v: Tensor
    """(M, R, K)."""

    @classmethod
    @torch.no_grad()
    def of(
        cls, model: LFormerForSequenceClassification, sites: tuple[Site, ...], transform: TransformLike = "dct"
    ) -> "Stack":
        """The stack of the matrices at these places of the model, all of one shape."""
        matrices = [weight_at(model, *site) for site in sites]
        weights = torch.stack(matrices, dim=-1)
        weights = weights.to(torch.promote_types(weights.dtype, torch.float32))
        chosen = get_transform(transform, len(sites))
        u, s, v = lsvd(weights, chosen)
        tubes = s.diagonal(dim1=0, dim2=1).mT  # (R, K)
        return cls(_name(sites), sites, chosen, weights, u, _real(chosen.forward(tubes)), v)

    def keep_tubes(self, rank: int) -> Tensor:
        """Which singular values the truncation to `rank` singular tubes keeps: (R, K)."""
        full = len(self.values)
        if not 1 <= rank <= full:
            raise UserError(f"rank={rank} must be from 1 to {full}, the full rank of {self.name}")
        return (torch.arange(full, device=self.values.device) < rank)[:, None].expand_as(self.values)

    def keep_energy(self, fraction: float) -> Tensor:
        """Which singular values, the largest of all slices first, hold that fraction of the energy: (R, K)."""
        if not 0 < fraction <= 1:
            raise UserError(f"fraction={fraction} must be above 0 and at most 1")
        ordered = self.values.double().flatten().sort(descending=True).values
        total = ordered.square().cumsum(0)
        count = int((total < fraction * total[-1]).sum()) + 1  # the first sum that reaches the goal is needed too
        return self.values >= ordered[min(count, len(ordered)) - 1] * (1 - SAME)

    def ranks(self, kept: Tensor) -> list[int]:
        """The multi-rank of what is kept: the rank of every slice."""
        return list(kept.sum(0).tolist())

    def saved(self, kept: Tensor) -> int:
        """Parameters of the matrices less those of their factors; a slice is stored whole where that is fewer."""
        n, m, k = self.weights.shape
        return n * m * k - sum(min(rank * (n + m), n * m) for rank in self.ranks(kept))

    def restored(self, kept: Tensor) -> Tensor:
        """The matrices with the other singular values left out: (N, M, K)."""
        tubes = _real(self.transform.inverse(torch.where(kept, self.values, 0)))
        full = len(self.values)
        left = lproduct(self.u, fdiagonal(tubes, full, full), self.transform)
        return lproduct(left, ltranspose(self.v, self.transform), self.transform)

    @torch.no_grad()
    def put_(self, model: LFormerForSequenceClassification, kept: Tensor | None) -> int:
        """Write the matrices, cut or (None) as they were trained, into the model; returns the parameters saved."""
        matrices = self.weights if kept is None else self.restored(kept)
        for site, matrix in zip(self.sites, matrices.unbind(-1), strict=True):
            weight_at(model, *site).copy_(matrix)
        return 0 if kept is None else self.saved(kept)


def weight_at(model: LFormerForSequenceClassification, layer: int, part: str) -> Tensor:
    """A weight matrix of a dense model, (N, M), as a view that writes through."""
    require_dense(model)
    if not 0 <= layer < len(model.model.layers):
        raise UserError(f"layer={layer}: the model has layers 0 to {len(model.model.layers) - 1}")
    if part not in part_names(model):
        raise UserError(f"there is no part {part!r}; a layer has {', '.join(part_names(model))}")
    block: Any = model.model.layers[layer]
    attention, feed_forward = block.attention, block.feed_forward
    if part in PROJECTIONS:
        return attention.query_key_value.weight.detach()[0].chunk(3)[PROJECTIONS.index(part)]
    if part in AGAIN:
        return attention.again[AGAIN.index(part)].weight.detach()[0]
    return (attention.output if part == "output" else getattr(feed_forward, part)).weight.detach()[0]


def require_dense(model: LFormerForSequenceClassification) -> None:
    """Refuse a model that is compressed by its design."""
    p = model.config.tube_length
    if p != 1:
        raise UserError(
            f"post-hoc compression is for a dense model (tube_length=1); this one has tube_length={p}, its weights "
            "are slices already"
        )


def _attention_parts(model: LFormerForSequenceClassification) -> list[str]:
    return [*PROJECTIONS, *(AGAIN if model.config.paper_counts else ()), "output"]


def _name(sites: tuple[Site, ...]) -> str:
    layers, parts = ({site[i] for site in sites} for i in range(2))
    return f"layers.{layers.pop() if len(layers) == 1 else '*'}.{parts.pop() if len(parts) == 1 else ATTENTION}"


def _real(tubes: Tensor) -> Tensor:
    return tubes.real if tubes.is_complex() else tubes
