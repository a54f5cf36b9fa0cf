"""The L-product calculus: transforms, products, decompositions and norms of tensors (..., m, n, p), tube mode last.

Pure functions on torch tensors: batched, differentiable, on any device, in any floating dtype. docs/math.md maps the
paper's symbols to these names.
"""

from lformer.algebra.factorizations import leigh, llu, lqr
from lformer.algebra.norms import frobenius_norm, nuclear_norm, prox_nuclear, spectral_norm
from lformer.algebra.products import facewise, lidentity, linverse, lpinv, lproduct, ltranspose
from lformer.algebra.ranks import average_rank, multi_rank, tubal_rank
from lformer.algebra.structure import block_circulant, block_diagonal, is_fdiagonal, is_invertible, is_orthogonal
from lformer.algebra.svd import lsvd, lsvd_energy, lsvd_truncated, singular_tubes
from lformer.algebra.transform import Transform
from lformer.algebra.transforms import get_transform
from lformer.algebra.unfolding import fold, matricize, mode_contract, mode_product, tensorize, unfold

__all__ = [
    "Transform",
    "average_rank",
    "block_circulant",
    "block_diagonal",
    "facewise",
    "fold",
    "frobenius_norm",
    "get_transform",
    "is_fdiagonal",
    "is_invertible",
    "is_orthogonal",
    "leigh",
    "lidentity",
    "linverse",
    "llu",
    "lpinv",
    "lproduct",
    "lqr",
    "lsvd",
    "lsvd_energy",
    "lsvd_truncated",
    "ltranspose",
    "matricize",
    "mode_contract",
    "mode_product",
    "multi_rank",
    "nuclear_norm",
    "prox_nuclear",
    "singular_tubes",
    "spectral_norm",
    "tensorize",
    "tubal_rank",
    "unfold",
]
