"""Linear layers with weights of eight bits, for inference on the CPU.

A row of weights has one scale, fixed; a row of activations has one too, found as it comes: it needs no calibration.

    y_k = (round(x_k / s) round(W_k / t)^T) s t + b_k,     s = max|row of x_k| / 127,  t = max|row of W_k| / 127

The product is exact in 32-bit integers, so each number carries an error of at most half a step of its row's scale.
"""

import torch
from torch import Tensor, nn

from lformer.kernels import interleave_slices
from lformer.nn.linear import LLinear

LEVELS = 127
NARROWEST = 256
"""Below this width of a slice int8 is slower than float32: finding the scales costs more than the product saves."""


class QuantizedLLinear(LLinear):
    """`LLinear` with weights in int8: a quarter of the memory. It has no gradients.

    Buffers: weight_int8 (P, M, N), transposed for the product; scale and shift (P, N).
    """

    weight_int8: Tensor
    scale: Tensor
    shift: Tensor

    def __init__(self, linear: LLinear) -> None:
        nn.Module.__init__(self)
        if linear.num_complex:
            raise ValueError(
                "int8 is for real transforms, and this LLinear holds the complex slices of the DFT; "
                "use a model with a real transform such as 'dct', or run this one in bfloat16"
            )
        device = linear.weight.device
        if device.type != "cpu":
            raise ValueError(f"int8 is for the CPU, and this LLinear is on {device}; call model.cpu() first")
        self.in_features = linear.in_features
        self.out_features = linear.out_features
        self.tube_length = linear.tube_length
        self.num_complex = 0
        self.backend = linear.backend
        self.transform = linear.transform
        weight = linear.weight.detach().float()
        rounded, scale = quantize_rows(weight)
        self.register_buffer("weight_int8", rounded.mT.contiguous())
        self.register_buffer("scale", scale.squeeze(-1))
        shift = torch.zeros(weight.shape[:2]) if linear.bias is None else linear.bias.detach().float().clone()
        self.register_buffer("shift", shift)

    @torch.no_grad()
    def slices(self, xh: Tensor, *, bias: bool = True, interleaved: bool = False) -> Tensor:
        """The layer in the transform domain, as `LLinear.slices`: (P, ..., M) -> (P, ..., N)."""
        rows = (interleave_slices(xh) if interleaved else xh).flatten(1, -2).float()
        y = rows.new_empty(*rows.shape[:2], self.scale.shape[-1])
        for k in range(self.tube_length):  # what one slice needs is in the cache, and its memory serves the next
            rounded, scale = quantize_rows(rows[k])
            y[k].copy_(torch._int_mm(rounded, self.weight_int8[k])).mul_(scale)
            if bias:
                torch.addcmul(self.shift[k], y[k], self.scale[k], out=y[k])
            else:
                y[k].mul_(self.scale[k])
        return y.to(xh.dtype).unflatten(1, xh.shape[1:-1])

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}, tube_length={self.tube_length}, int8"


def quantize_(model: nn.Module, *, narrowest: int = NARROWEST) -> nn.Module:
    """Put `QuantizedLLinear` in the place of every `LLinear` of the model whose slices are at least `narrowest` wide.

    In place; returns the model. Where nothing is wide enough the model would not gain, and that is an error.

    >>> model = nn.Sequential(LLinear(512, 512, tube_length=2))
    >>> quantize_(model)[0].weight_int8.dtype
    torch.int8
    """
    linears = {name: module for name, module in model.named_modules() if type(module) is LLinear}
    wide = {name: module for name, module in linears.items() if min(module.weight.shape[1:]) >= narrowest}
    if not wide:
        raise ValueError(
            f"quantize_ found {len(linears)} LLinear, none with slices of {narrowest} features or more, which int8 "
            "needs to be faster; leave the model in float32, or lower `narrowest`"
        )
    quantized = {name: QuantizedLLinear(module) for name, module in wide.items()}  # all, or an error before any
    for name, module in quantized.items():
        parent, _, child = name.rpartition(".")
        setattr(model.get_submodule(parent), child, module)
    return model


def quantize_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """Whole numbers in -127..127, (..., M), and the scale of every row, (..., 1): x is about rounded * scale."""
    scale = x.abs().amax(-1, keepdim=True).div_(LEVELS).clamp_(min=torch.finfo(x.dtype).tiny)
    return torch.mul(x, scale.reciprocal()).round_().to(torch.int8), scale
