"""The linear layer of the L-product: one weight matrix per slice, stored in the transform domain."""

import math

import torch
from torch import Tensor, nn

from lformer.kernels import interleave_slices, require_backend, slice_linear, use_triton
from lformer.nn.folding import fold_slices, slice_width, unfold_slices
from lformer.nn.tube_transform import TubeTransform, num_complex_slices


class LLinear(nn.Module):
    """Y = X * W + B under the L-product: yh_k = xh_k W_k^T + b_k for every slice k of the transform domain.

    paper: Sec. L-MHA, "Implementation details": the weights are kept transformed, only activations are transformed.
    Parameters: weight (P, N, M) and bias (P, N), M and N the slice widths of input and output: 1/P of a dense layer.
    For the DFT the channels are [real slices, real parts, imaginary parts] of weight and activations alike.

    With `transform` the layer stands alone: (..., in_features) -> (..., out_features), in place of `nn.Linear`. With
    transform=None it is part of a larger layer and acts on slices of the transform domain: (P, ..., M) -> (P, ..., N).

    >>> LLinear(12, 8, tube_length=4)(torch.randn(2, 5, 12)).shape
    torch.Size([2, 5, 8])
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        tube_length: int = 4,
        *,
        bias: bool = True,
        transform: str | None = "dct",
        num_complex: int = 0,
        backend: str = "auto",
    ) -> None:
        super().__init__()
        require_backend(backend)
        self.in_features = in_features
        self.out_features = out_features
        self.tube_length = tube_length
        self.num_complex = num_complex if transform is None else num_complex_slices(tube_length, transform)
        self.backend = backend
        self.transform = None if transform is None else TubeTransform(tube_length, transform, backend)
        width_in, width_out = slice_width(in_features, tube_length), slice_width(out_features, tube_length)
        self.weight = nn.Parameter(torch.empty(tube_length, width_out, width_in))
        self.bias = nn.Parameter(torch.empty(tube_length, width_out)) if bias else None
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Every slice as `nn.Linear` of its own width: uniform within 1 / sqrt(fan-in)."""
        bound = 1 / math.sqrt(self.weight.shape[-1])
        self.weight.uniform_(-bound, bound)
        self.weight[self.tube_length - 2 * self.num_complex :] /= math.sqrt(2)  # |Re + i Im| as large as a real one
        if self.bias is not None:
            self.bias.uniform_(-bound, bound)

    def forward(self, x: Tensor) -> Tensor:
        if self.transform is None:
            return self.slices(x)
        if x.ndim == 1:
            return self(x[None])[0]
        xh = self.transform(fold_slices(x, self.tube_length))
        return unfold_slices(self.transform.inverse(self.slices(xh)), self.out_features)

    def slices(self, xh: Tensor, *, bias: bool = True, interleaved: bool = False) -> Tensor:
        """The layer in the transform domain: (P, ..., M) -> (P, ..., N).

        bias=False leaves the bias to whoever comes next; `interleaved` multiplies interleave_slices(xh).
        """
        return self._product(xh, self.weight, self.bias if bias else None, interleaved)

    def _product(self, xh: Tensor, weight: Tensor, bias: Tensor | None, interleaved: bool = False) -> Tensor:
        """xh_k W_k^T + b_k for every slice, real or complex."""
        if self.num_complex:
            use_triton(self.backend, xh, unsupported="slices of the DFT are complex, and the kernels are real")
            y = self._complex_product(interleave_slices(xh) if interleaved else xh, weight)
            return y if bias is None else y + bias.view(len(bias), *[1] * (y.ndim - 2), -1)
        return slice_linear(xh, weight, bias, interleaved=interleaved, backend=self.backend)

    def _complex_product(self, xh: Tensor, weight: Tensor) -> Tensor:
        """(Xr + i Xi)(Wr + i Wi)^T as one real product: [Xr, Xi] [[Wr, -Wi], [Wi, Wr]]^T."""
        rows = xh.flatten(1, -2)
        c = self.num_complex
        r = self.tube_length - 2 * c
        real = torch.bmm(rows[:r], weight[:r].mT)
        w_re, w_im = weight[r : r + c], weight[r + c :]
        block = torch.cat([torch.cat([w_re, -w_im], dim=-1), torch.cat([w_im, w_re], dim=-1)], dim=-2)
        pair = torch.cat([rows[r : r + c], rows[r + c :]], dim=-1)
        y_re, y_im = torch.bmm(pair, block.mT).chunk(2, dim=-1)
        return torch.cat([real, y_re, y_im]).unflatten(1, xh.shape[1:-1])

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}, tube_length={self.tube_length}, bias={self.bias is not None}"
