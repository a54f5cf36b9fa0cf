"""How much the slices of a tensor Transformer talk to each other, layer by layer."""

import inspect
from typing import Any

import torch
from torch import nn

from lformer.nn.layers import LDecoderLayer, LEncoderLayer
from lformer.nn.tube_transform import TubeTransform


def coupling(model: nn.Module, batch: dict[str, Any], *, probes: int = 4, seed: int = 0) -> list[float]:
    """For every layer, the off-diagonal share of its slice Jacobian, from 0 (slices are independent) to 1. A layer that
    is shared by several depths of a stack has a value for each of them.

    With J_kl the derivative of output slice k by input slice l, both in the transform domain, it is
    sum_{k != l} ||J_kl||_F^2 / sum_{k, l} ||J_kl||_F^2, at the activations that `batch` (the keyword arguments of the
    model) produces, estimated with random probes: E ||v^T J_kl||^2 = ||J_kl||_F^2 for v normal. P independent slices
    that are as strongly coupled to each other as to themselves would give (P - 1) / P.
    """
    layers = [module for module in model.modules() if isinstance(module, LEncoderLayer | LDecoderLayer)]
    if not layers:
        raise ValueError("coupling: the model has no LEncoderLayer or LDecoderLayer")
    calls = _record_calls(model, layers, batch)
    generator = torch.Generator(device=calls[0][1]["x"].device).manual_seed(seed)
    was_training = model.training
    model.eval()
    try:
        return [_off_diagonal_share(layer, call, probes, generator) for layer, call in calls]
    finally:
        model.train(was_training)


def _record_calls(model: nn.Module, layers: list[Any], batch: dict[str, Any]) -> list[tuple[Any, dict[str, Any]]]:
    """The layers in the order in which the model calls them on the batch, each with its arguments by name."""
    calls: list[tuple[Any, dict[str, Any]]] = []

    def record(layer: nn.Module, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        arguments = dict(inspect.signature(layer.forward).bind(*args, **options).arguments)
        if arguments["x"].ndim == 4:  # a layer that is given (B, T, D) calls itself with slices
            calls.append((layer, {**arguments.pop("options", {}), **arguments}))

    was_training = model.training
    hooks = [layer.register_forward_pre_hook(record, with_kwargs=True) for layer in layers]
    try:
        model.eval()
        with torch.no_grad():
            model(**batch)
    finally:
        model.train(was_training)
        for hook in hooks:
            hook.remove()
    return calls


def _off_diagonal_share(layer: Any, call: dict[str, Any], probes: int, generator: torch.Generator) -> float:
    transform: TubeTransform = layer.transform or layer.attention.transform or layer.feed_forward.transform
    p = layer.config.tube_length
    x = call["x"].detach()
    options = {name: value for name, value in call.items() if name not in ("x", "cache")}
    with torch.enable_grad():
        xh = transform(x).requires_grad_()
        yh = transform(layer(transform.inverse(xh), **options)[0])
        energy = xh.new_zeros(p, p, dtype=torch.float64)
        for _ in range(probes):
            for k in range(p):
                probe = torch.randn(yh.shape[1:], generator=generator, device=yh.device, dtype=yh.dtype)
                (pulled,) = torch.autograd.grad(yh[k], xh, probe, retain_graph=True)
                energy[k] += pulled.double().square().flatten(1).sum(1)
    r = p - 2 * layer.config.num_complex
    slice_of = torch.arange(p, device=energy.device)
    slice_of[r + layer.config.num_complex :] -= layer.config.num_complex  # real and imaginary part are one slice
    own = slice_of[:, None] == slice_of[None, :]
    total = float(energy.sum())
    return 1 - float(energy[own].sum()) / total if total else 0.0
