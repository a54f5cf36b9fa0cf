"""L and L^-1 as a module, acting on the first (slice) axis: fixed, learned, or learned and orthogonal.

A complex transform (the DFT) is carried as real numbers. Of the P slices of a real tensor, R are real (one for odd P,
two for even) and the others are C conjugate pairs, of which one slice each is kept: P = R + 2C real channels, in the
order [real slices, real parts, imaginary parts]. So activations and weights keep their shapes and dtype, and autocast,
compile and safetensors need to know nothing of complex numbers.
"""

import torch
from torch import Tensor, nn

from lformer.algebra import get_transform
from lformer.kernels import require_backend, tube_mix
from lformer.nn.constants import Constants

LEARNED = ("learned", "learned-orthogonal")


class TubeTransform(Constants):
    """xh = L(x) by `forward` and x = L^-1(xh) by `inverse`, on (P, ...).

    transform: a name that `get_transform` knows; "learned", a free pair (Z, W) that starts as the DCT and its inverse
    (W is not tied to Z^-1: 2 P^2 parameters); or "learned-orthogonal", Z = DCT exp(A - A^T) with W = Z^T at every step.

    >>> layer = TubeTransform(4)
    >>> x = torch.randn(4, 2, 3, 5)
    >>> torch.allclose(layer.inverse(layer(x)), x, atol=1e-6)
    True
    """

    def __init__(self, tube_length: int, transform: str = "dct", backend: str = "auto") -> None:
        super().__init__()
        require_backend(backend)
        self.tube_length = tube_length
        self.transform = transform
        self.backend = backend
        # An identity costs nothing: neither does any real transform of one-element tubes, where Z = 1.
        self.start: Tensor
        self.is_identity = transform == "identity" or (tube_length == 1 and transform not in (*LEARNED, "fft"))
        self.num_complex = num_complex_slices(tube_length, transform)
        if transform == "learned":
            self.matrix = nn.Parameter(torch.empty(tube_length, tube_length))
            self.inverse_matrix = nn.Parameter(torch.empty(tube_length, tube_length))
        elif transform == "learned-orthogonal":
            self.generator = nn.Parameter(torch.empty(tube_length, tube_length))
            self.register_buffer("start", torch.empty(tube_length, tube_length), persistent=False)
        elif not self.is_identity:
            self.register_buffer("matrix", torch.empty(tube_length, tube_length), persistent=False)
            self.register_buffer("inverse_matrix", torch.empty(tube_length, tube_length), persistent=False)
        self.reset_parameters()

    def initial_values(self) -> dict[str, Tensor]:
        if self.transform == "learned-orthogonal":
            zero = torch.zeros(self.tube_length, self.tube_length, dtype=torch.float64)
            return {"generator": zero, "start": real_pair(self.tube_length, "dct")[0]}
        if self.is_identity:
            return {}
        name = "dct" if self.transform == "learned" else self.transform
        matrix, inverse = real_pair(self.tube_length, name)
        return {"matrix": matrix, "inverse_matrix": inverse}

    def matrices(self) -> tuple[Tensor | None, Tensor | None]:
        """Z and the matrix that undoes it, as they are now; None for the identity."""
        if self.is_identity:
            return None, None
        if self.transform == "learned-orthogonal":
            dtype = torch.promote_types(self.generator.dtype, torch.float32)
            with torch.autocast(self.generator.device.type, enabled=False):  # bf16 would not be orthogonal
                z = self.start.to(dtype) @ rotation(self.generator.to(dtype))
            return z, z.T
        return self.matrix, self.inverse_matrix

    def forward(self, x: Tensor) -> Tensor:
        """L: (P, ...) -> (P, ...)."""
        return tube_mix(self.matrices()[0], x, backend=self.backend)

    def inverse(self, xh: Tensor) -> Tensor:
        """L^-1: (P, ...) -> (P, ...)."""
        return tube_mix(self.matrices()[1], xh, backend=self.backend)

    def extra_repr(self) -> str:
        return f"{self.tube_length}, transform={self.transform!r}"


def rotation(generator: Tensor) -> Tensor:
    """exp(A - A^T), orthogonal, by products alone: unlike `torch.linalg.matrix_exp` it can be captured in a CUDA graph.

    A Taylor series of (A - A^T) / 2^6, squared six times, and one Newton step towards the nearest orthogonal matrix,
    which removes what the squarings add up. Exact to rounding for rotations of up to about 60 radians.
    """
    skew = (generator - generator.T) / 2**6
    eye = torch.eye(len(skew), dtype=skew.dtype, device=skew.device)
    power = eye
    for order in range(14, 0, -1):
        power = eye + skew @ power / order
    for _ in range(6):
        power = power @ power
    return 1.5 * power - 0.5 * power @ power.T @ power


def num_complex_slices(tube_length: int, transform: str) -> int:
    """C: how many pairs of channels hold the real and imaginary parts of one slice (0 for a real transform)."""
    if transform in LEARNED:
        return 0
    resolved = get_transform(transform, tube_length)
    return (tube_length - 1) // 2 if resolved.is_complex else 0


def real_pair(tube_length: int, transform: str) -> tuple[Tensor, Tensor]:
    """L and L^-1 as real P x P matrices in float64; for a complex transform on the channels [real, Re, Im]."""
    resolved = get_transform(transform, tube_length)
    if not resolved.is_complex:
        return resolved.matrix, resolved.inverse_matrix
    half = resolved.half
    assert half is not None, "named complex transforms have conjugate rows"
    single = half.weight == 1  # its own conjugate, so real
    z = resolved.matrix[half.keep]
    back = resolved.inverse_matrix[:, half.keep] * half.weight
    forward = torch.cat([z[single].real, z[~single].real, z[~single].imag])
    inverse = torch.cat([back[:, single].real, back[:, ~single].real, -back[:, ~single].imag], dim=1)
    return forward, inverse
