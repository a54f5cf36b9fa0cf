"""Section 5 of the paper, word for word: one text, float64, Python loops over slices i and heads j, plain products.

What the tests compare the layers to. A tensor T x d_s x p is the list of its p frontal slices. Of a layer only the
parameters and the configuration are used, and of the transform only its matrix Z: with Z complex (the DFT) all p slices
are computed in complex128, with conjugate-symmetric parameters, and that the result is real is checked, not assumed.
Nothing is detached, so that gradients can be compared too. Dropout is left out.
"""

from collections.abc import Callable
from functools import partial
from math import cos, sin, sqrt
from typing import Any

import torch
from torch import Tensor

from lformer.algebra import get_transform
from lformer.kernels import ACTIVATIONS
from lformer.nn.tube_transform import LEARNED, TubeTransform

Slices = list[Tensor]
Function = Callable[[Slices], Slices]


def tensorize(x: Tensor, p: int) -> Slices:
    """Eq. (tensorize): X(t, j, k) = x(t, (k - 1) d_s + j), with zeros where p does not divide d."""
    width = (x.shape[1] + p - 1) // p
    x = torch.cat([x, x.new_zeros(x.shape[0], p * width - x.shape[1])], dim=1)
    return [x[:, k * width : (k + 1) * width] for k in range(p)]


def matricize(x: Slices, d: int) -> Tensor:
    """Mat_p: the slices side by side, cut to d features."""
    return torch.cat(x, dim=1)[:, :d]


def mode3(x: Slices, matrix: Tensor) -> Slices:
    """X x_3 Z: slice k of the result is sum_l Z(k, l) X^(l)."""
    return [sum((matrix[k, i] * x[i] for i in range(len(x))), torch.zeros(())) for k in range(len(matrix))]


def transform_pair(transform: TubeTransform) -> tuple[Tensor, Tensor]:
    """Z and Z^-1. Only "learned" has an inverse of its own, which need not be Z^-1."""
    p, name = transform.tube_length, transform.transform
    if name == "learned":
        return transform.matrix, transform.inverse_matrix
    if name in LEARNED:
        rotation = torch.linalg.matrix_exp(transform.generator - transform.generator.T)
        z = get_transform("dct", p).matrix @ rotation
    else:
        z = get_transform(name, p).matrix
    return z, torch.linalg.inv(z)


def attention(layer: Any, x: Slices, memory: Slices | None = None, mask: Tensor | None = None) -> Slices:
    """Algorithm 1: MHA_L(X) = L^-1(Y), original domain in and out."""
    z, z_inverse = transform_pair(layer.transform)
    memory_h = None if memory is None else mode3(memory, z)
    return _real(mode3(attention_slices(layer, mode3(x, z), memory_h, mask), z_inverse))


def attention_slices(layer: Any, xh: Slices, memory: Slices | None = None, mask: Tensor | None = None) -> Slices:
    """Algorithm 1, lines 4 to 16: head_i^(j) = Softmax(Q K^H / sqrt(d_h)) V; Y_i = Concat_j(head_i^(j)) W_O,i.

    The scores are Hermitian; where they are complex, the softmax takes their real part. mask: (T, S), True: may look.
    With attention_domain="original" the heads stand between L^-1 and L.
    """
    config, p = layer.config, len(xh)
    h, size = config.heads_per_slice, config.head_size
    source = xh if memory is None else memory
    weights, biases = _query_key_value(layer)
    projected: list[list[Any]] = []
    for i in range(p):
        parts = [
            _linear(what, weight[i], bias[i])
            for what, weight, bias in zip((xh[i], source[i], source[i]), weights, biases, strict=True)
        ]
        if layer.again is not None:
            parts = [
                _linear(part, _all_slices(extra.weight, config)[i], _all_slices(extra.bias, config)[i])
                for part, extra in zip(parts, layer.again, strict=True)
            ]
        projected.append(parts)
    in_original = config.attention_domain == "original"
    if in_original:
        z, z_inverse = transform_pair(layer.transform)
        tensors = [_real(mode3([parts[what] for parts in projected], z_inverse)) for what in range(3)]
        projected = [list(parts) for parts in zip(*tensors, strict=True)]
    outputs = []
    for q, k, v in projected:
        heads = []
        for j in range(h):
            columns = slice(j * size, (j + 1) * size)
            scores = q[:, columns] @ k[:, columns].mH / sqrt(size)
            heads.append(_softmax(scores.real, mask).to(v.dtype) @ v[:, columns])
        outputs.append(torch.cat(heads, dim=1))
    if in_original:
        outputs = mode3(outputs, z)
    if config.interleave:
        outputs = _interleave(outputs, config)
    return _project(layer.output, outputs, config)


def feed_forward(layer: Any, x: Slices) -> Slices:
    """Eq. (TFFN): sigma(X * W_1 + B_1) * W_2 + B_2 under the L-product, original domain in and out."""
    z, z_inverse = transform_pair(layer.transform)
    return _real(mode3(feed_forward_slices(layer, mode3(x, z)), z_inverse))


def feed_forward_slices(layer: Any, xh: Slices) -> Slices:
    """H_i = X_i W_1,i + b_1,i; G_i = sigma(H_i); Y_i = G_i W_2,i + b_2,i: the theorem's sigma, on the slices.

    The equation's sigma (activation_domain="original") stands between L^-1 and L. Of two conjugate slices the theorem's
    acts on the real and imaginary parts of the first; the second stays its conjugate.
    """
    config, sigma = layer.config, ACTIVATIONS[layer.config.hidden_act]
    hidden = _project(layer.inner, xh, config)
    if config.activation_domain == "original":
        z, z_inverse = transform_pair(layer.transform)
        hidden = mode3([sigma(part) for part in _real(mode3(hidden, z_inverse))], z)
    else:
        hidden = _on_channels(lambda parts: [sigma(part) for part in parts], config)(hidden)
    if config.interleave:
        hidden = _interleave(hidden, config)
    return _project(layer.outer, hidden, config)


def layer_norm(norm: Any, x: Slices) -> Slices:
    """TLN(X)(t, :, k) = Gamma_k (X(t, :, k) - mu_tk) / sqrt(sigma^2_tk + eps) + B_k, over the d_s features."""
    result = []
    for k, part in enumerate(x):
        row = min(k, len(norm.weight) - 1)  # one row may serve all slices
        mean = part.sum(dim=1, keepdim=True) / part.shape[1]
        variance = ((part - mean) ** 2).sum(dim=1, keepdim=True) / part.shape[1]
        result.append(norm.weight[row] * (part - mean) / torch.sqrt(variance + norm.eps) + norm.bias[row])
    return result


def encoder_layer(layer: Any, x: Tensor, mask: Tensor | None = None) -> Tensor:
    """X' = TLN(X + MHA_L(X)), Y = TLN(X' + TFFN(X')): (T, d) -> (T, d).

    With transform_scope="block" the same between one L and one L^-1, the norms on the slices of the transform domain
    (for the DFT on their real and imaginary parts).
    """
    config, attend, feed = layer.config, layer.attention, layer.feed_forward
    norms: list[Function] = [partial(layer_norm, norm) for norm in (layer.attention_norm, layer.feed_forward_norm)]
    slices = tensorize(x, config.tube_length)
    if config.transform_scope == "sublayer":
        slices = _residual(config, norms[0], lambda y: attention(attend, y, mask=mask), slices)
        slices = _residual(config, norms[1], lambda y: feed_forward(feed, y), slices)
    else:
        z, z_inverse = transform_pair(layer.transform)
        norms = [_on_channels(norm, config) for norm in norms]
        xh = _residual(config, norms[0], lambda y: attention_slices(attend, y, mask=mask), mode3(slices, z))
        xh = _residual(config, norms[1], lambda y: feed_forward_slices(feed, y), xh)
        slices = _real(mode3(xh, z_inverse))
    return matricize(slices, config.hidden_size)


def positional_encoding(length: int, width: int, alpha: list[float]) -> Tensor:
    """P(t, j, k) = sin (j odd) or cos (j even) of t alpha_k / 10000^(2 floor((j - 1) / 2) / d_s): (p, T, d_s)."""
    table = torch.zeros(len(alpha), length, width, dtype=torch.float64)
    for k in range(1, len(alpha) + 1):
        for t in range(1, length + 1):
            for j in range(1, width + 1):
                angle = t / 10000 ** (2 * ((j - 1) // 2) / width) * alpha[k - 1]
                table[k - 1, t - 1, j - 1] = sin(angle) if j % 2 == 1 else cos(angle)
    return table


def _residual(config: Any, norm: Function, sublayer: Function, x: Slices) -> Slices:
    """TLN(X + F(X)), or X + F(TLN(X)) with the norm first."""
    if config.norm_placement == "post":
        return norm([a + b for a, b in zip(x, sublayer(x), strict=True)])
    return [a + b for a, b in zip(x, sublayer(norm(x)), strict=True)]


def _on_channels(function: Function, config: Any) -> Function:
    """The function on the real and imaginary parts of complex slices, each as a slice of its own."""
    return lambda xh: _all_slices(function(_channels(xh, config)), config)


def _softmax(scores: Tensor, mask: Tensor | None) -> Tensor:
    """exp(S_tu) / sum_v exp(S_tv) over the keys that row t may look at."""
    weights = torch.exp(scores)
    if mask is not None:
        weights = weights * mask
    return weights / weights.sum(dim=1, keepdim=True)


def _query_key_value(layer: Any) -> tuple[list[Slices], list[Slices]]:
    """Weights and biases of queries, keys and values, each as p slices. Stored are the rows of W_Q^T, W_K^T, W_V^T."""
    modules = [layer.query, layer.key_value] if layer.cross else [layer.query_key_value]
    weight = torch.cat([module.weight for module in modules], dim=1).chunk(3, dim=1)
    bias = torch.cat([module.bias for module in modules], dim=1).chunk(3, dim=1)
    return [_all_slices(part, layer.config) for part in weight], [_all_slices(part, layer.config) for part in bias]


def _project(linear: Any, xh: Slices, config: Any) -> Slices:
    weight, bias = _all_slices(linear.weight, config), _all_slices(linear.bias, config)
    return [_linear(xh[i], weight[i], bias[i]) for i in range(len(xh))]


def _linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """X W + b; the weights are stored transposed."""
    dtype = torch.promote_types(x.dtype, weight.dtype)
    return x.to(dtype) @ weight.to(dtype).T + bias.to(dtype)


def _interleave(x: Slices, config: Any) -> Slices:
    """Channel k of the result is chunk k of every channel, one after the other (ours, not the paper's)."""
    channels = _channels(x, config)
    p, chunk = len(channels), channels[0].shape[1] // len(channels)
    mixed = [torch.cat([part[:, k * chunk : (k + 1) * chunk] for part in channels], dim=1) for k in range(p)]
    return _all_slices(mixed, config)


def _all_slices(channels: Any, config: Any) -> Slices:
    """Stored channels to all p slices. The DFT stores [real slices, Re, Im] of slices 0..p/2; slice p - k is the
    conjugate of slice k.
    """
    p, c = len(channels), config.num_complex
    slices = list(channels)
    if c == 0:
        return slices
    if p % 2 == 0:
        slices[p // 2] = channels[1]
    for k in range(1, c + 1):
        re, im = channels[p - 2 * c + k - 1], channels[p - c + k - 1]
        slices[k], slices[p - k] = torch.complex(re, im), torch.complex(re, -im)
    return slices


def _channels(slices: Slices, config: Any) -> Slices:
    """All p slices back to stored channels; slices that should be conjugate to each other must be."""
    p, c = len(slices), config.num_complex
    if c == 0:
        return _real(slices)
    real = _real([slices[0]] + ([slices[p // 2]] if p % 2 == 0 else []))
    pairs = [(slices[k], slices[p - k]) for k in range(1, c + 1)]
    _real([first + second for first, second in pairs])
    _real([1j * (first - second) for first, second in pairs])
    return real + [first.real for first, _ in pairs] + [first.imag for first, _ in pairs]


def _real(slices: Slices) -> Slices:
    """The slices as real tensors, which they must be up to rounding."""
    for part in slices:
        if part.is_complex() and float(part.detach().imag.abs().max()) > 1e-10 * (1 + float(part.detach().abs().max())):
            raise ValueError("the reference gave a tensor that is not real: its slices are not conjugate-symmetric")
    return [part.real if part.is_complex() else part for part in slices]
