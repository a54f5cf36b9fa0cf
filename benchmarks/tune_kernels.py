"""Time every kernel in several tilings at the shapes of our targets, beside what torch would do; check each result.

    python benchmarks/tune_kernels.py --out benchmarks/results/kernels-GPU.json
    for i in 0 1 2 3; do python benchmarks/tune_kernels.py --warm $i/4 & done    # first: compile in several processes

The tables of tiles in src/lformer/kernels/gpu are chosen from its output. Times are medians of CUDA-graph replays.
"""

import argparse
import functools
import itertools
import operator
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from harness import facts, write
from torch import Tensor

from lformer.kernels.gpu import slice_attention, slice_ffn, slice_gemm, slice_matmul, tube_norm
from lformer.kernels.gpu.launch import next_power_of_2, split_width

SHAPES = {  # name: (B, T, D, heads)
    "128x128x128": (128, 128, 128, 4),
    "128x128x256": (128, 128, 256, 4),
    "64x128x768": (64, 128, 768, 8),
    "64x512x768": (64, 512, 768, 8),
    "32x512x2048": (32, 512, 2048, 16),
}
P = 4
CALLS = 10  # in one graph
Candidate = tuple[str, str, Callable[[], Any], Callable[[], Any]]  # operation, variant, call, reference


def make(*shape: int, scale: float = 1.0) -> Tensor:
    return (torch.randn(*shape, device="cuda") * scale).bfloat16()


def candidates(b: int, t: int, d: int, heads: int) -> Iterator[Candidate]:
    n, m = b * t, d // P
    yield from tube_norms(n, m)
    for name, inner, outer in (("qkv", m, 3 * m), ("out", m, m), ("ffn1", m, 4 * m), ("ffn2", 4 * m, m)):
        yield from matmuls(name, n, inner, outer)
        yield from outers(name, n, inner, outer)
    yield from ffns(n, m)
    yield from attentions(b, t, heads // P, m // (heads // P))


def tube_norms(n: int, m: int) -> Iterator[Candidate]:
    s, x, dy, dyh = (make(P, 1, n, m) for _ in range(4))
    bias, gamma, beta = (make(P, m) for _ in range(3))
    z = torch.linalg.qr(torch.randn(P, P, device="cuda"))[0].contiguous()
    inverse = z.T.contiguous()
    rows = torch.ones(P, 1, n, device="cuda")

    def forward(tiles: dict[str, int], keep: bool) -> Any:
        tube_norm._tiles = lambda *_: tiles
        return torch.ops.lformer.tube_norm(s, x, bias, inverse, gamma, beta, z, None, 1e-5, 0.0, True, True, keep)

    def backward(tiles: dict[str, int], programs: int) -> Any:
        tube_norm._tiles, tube_norm.BACKWARD_PROGRAMS = (lambda *_: tiles), programs * 132
        return torch.ops.lformer.tube_norm_backward(
            dy, dyh, x, rows, rows, inverse, gamma, z, None, 0.0, True, False, torch.bfloat16
        )

    block, count = split_width(m, next_power_of_2(m))
    widths = {(block, count), (next_power_of_2(m), 1)}
    for (block, count), tokens, warps in itertools.product(sorted(widths), (1, 2, 4, 8, 16, 32, 64), (2, 4, 8)):
        held = tokens * block * count * P // (32 * warps)  # numbers of a thread
        if not 8 <= held <= 64:
            continue
        full = block * count == m
        tiles = {"BLOCK_M": block, "TILES": count, "FULL": full, "BLOCK_N": tokens, "num_warps": warps}
        for keep, name in ((True, "forward"), (False, "inference")):
            call = functools.partial(forward, tiles, keep)
            yield f"tube_norm {name} {n}x{m}", f"{tiles}", call, lambda: None
        for programs in (1, 2, 4) if held <= 40 else ():
            call = functools.partial(backward, tiles, programs)
            yield f"tube_norm backward {n}x{m}", f"{tiles} {programs}", call, lambda: None


def matmuls(name: str, n: int, inner: int, outer: int) -> Iterator[Candidate]:
    a, w, bias = make(P, n, inner), make(P, outer, inner, scale=inner**-0.5), make(P, outer)

    def reference() -> Tensor:
        return torch.baddbmm(bias.float()[:, None], a.float(), w.float().mT)

    operation = f"matmul {name} {n}x{inner}x{outer}"
    yield operation, "torch.bmm, then add", lambda: torch.bmm(a, w.mT) + bias[:, None], reference
    yield operation, "torch.bmm, no bias", lambda: torch.bmm(a, w.mT), lambda: None

    def loop() -> Tensor:
        out = a.new_empty(P, n, outer)
        for k in range(P):
            torch.addmm(bias[k], a[k], w[k].T, out=out[k])
        return out

    yield operation, "addmm, slice by slice", loop, reference
    for bn, bo, bk, warps, stages in (
        (128, 128, 64, 8, 3),
        (128, 128, 64, 4, 3),
        (128, 128, 32, 8, 4),
        (128, 64, 64, 4, 3),
        (128, 64, 32, 4, 4),
        (64, 64, 64, 4, 3),
        (64, 32, 32, 4, 3),
        (128, 32, 32, 4, 3),
        (128, 256, 64, 8, 3),
        (64, 128, 64, 4, 4),
    ):
        if bo > max(32, 2 * outer) or bk > max(32, inner) or (bo == 32 and outer > 192):
            continue
        tiles = {"BLOCK_N": bn, "BLOCK_O": bo, "BLOCK_K": bk, "num_warps": warps, "num_stages": stages}
        yield (
            operation,
            f"{tiles}",
            functools.partial(slice_matmul.slice_matmul, a, w.mT, bias, tiles=tiles),
            reference,
        )

    for bn, bo, bk, warps, stages, programs in (
        (128, 128, 64, 8, 3, 1),
        (128, 128, 64, 8, 4, 1),
        (128, 128, 64, 4, 3, 1),
        (128, 128, 64, 4, 3, 2),
        (128, 256, 64, 8, 3, 1),
        (128, 64, 64, 4, 3, 2),
        (128, 64, 64, 4, 4, 3),
        (256, 64, 64, 8, 3, 1),
    ):
        if bk > inner or bo > 2 * outer:
            continue
        tiles = {"BLOCK_N": bn, "BLOCK_O": bo, "BLOCK_K": bk, "num_warps": warps, "num_stages": stages}
        tiles["programs"] = programs
        yield operation, f"TMA {tiles}", functools.partial(slice_gemm.slice_gemm, a, w, bias, tiles=tiles), reference


def outers(name: str, n: int, inner: int, outer: int) -> Iterator[Candidate]:
    a, g = make(P, n, inner), make(P, n, outer)
    sums = torch.empty(P, outer, device="cuda")

    def reference() -> Tensor:
        return torch.bmm(g.float().mT, a.float())

    operation = f"outer {name} {n}x{outer}x{inner}"
    yield operation, "torch.bmm", lambda: torch.bmm(g.mT, a), reference
    yield (
        operation,
        "torch.bmm and our sums",
        lambda: (torch.bmm(g.mT, a), slice_matmul.column_sums(g, sums))[0],
        reference,
    )
    yield f"sums {name} {n}x{outer}", "ours", lambda: slice_matmul.column_sums(g, sums), lambda: g.float().sum(1)
    for bn, bg, ba, warps, stages in (
        (64, 64, 64, 4, 4),
        (64, 64, 32, 4, 4),
        (64, 128, 64, 4, 4),
        (64, 128, 128, 8, 3),
        (32, 64, 64, 4, 5),
        (128, 64, 64, 4, 3),
    ):
        if ba > 2 * inner or bg > 2 * outer:
            continue
        tiles = {"BLOCK_N": bn, "BLOCK_G": bg, "BLOCK_A": ba, "num_warps": warps, "num_stages": stages}
        yield (
            operation,
            f"{tiles}",
            functools.partial(slice_matmul.slice_outer, g, a, sums=True, tiles=tiles),
            reference,
        )


def ffns(n: int, m: int) -> Iterator[Candidate]:
    x, g = make(P, n, m), make(P, n, m)
    w1, b1, w2 = make(P, 4 * m, m, scale=m**-0.5), make(P, 4 * m), make(P, m, 4 * m, scale=0.5 * m**-0.5)

    def hidden() -> tuple[Tensor, Tensor]:
        z = torch.baddbmm(b1.float()[:, None], x.float(), w1.float().mT)
        return z.relu(), torch.bmm(g.float(), w2.float()) * (z > 0)

    def unfused() -> Tensor:
        return torch.bmm((torch.bmm(x, w1.mT) + b1[:, None]).relu(), w2.mT)

    references = (
        lambda: torch.bmm(hidden()[0], w2.float().mT),
        lambda: torch.bmm(hidden()[1], w1.float()),
        lambda: torch.bmm(hidden()[1].mT, x.float()),
    )
    arguments = (x, w1, b1, w2, "relu")
    yield f"ffn forward {n}x{m}", "torch, four kernels", unfused, references[0]
    h = torch.baddbmm(b1[:, None], x, w1.mT).relu()
    for bo, warps, stages, programs in ((128, 8, 3, 1), (128, 8, 4, 1), (64, 4, 3, 2), (256, 8, 3, 1), (64, 4, 4, 3)):
        tiles = {"BLOCK_N": 128, "BLOCK_O": bo, "BLOCK_K": 64, "num_warps": warps, "num_stages": stages}
        tiles["programs"] = programs
        yield (
            f"gemm backward {n}x{m}",
            f"{tiles}",
            functools.partial(slice_gemm.slice_gemm_backward, g, w2, h, "relu", tiles=tiles),
            lambda: torch.bmm(g.float(), w2.float()) * (h > 0),
        )
    if m > 256:
        return
    split = slice_ffn._split(m, 64)
    for bn, bf, warps, stages in (
        (128, 64, 4, 3),
        (128, 64, 8, 2),
        (128, 64, 8, 3),
        (128, 128, 8, 2),
        (64, 64, 4, 2),
        (64, 64, 4, 3),
        (128, 32, 8, 3),
        (256, 64, 16, 2),
        (256, 64, 8, 2),
        (256, 32, 16, 3),
    ):
        tiles = {**split, "BLOCK_N": bn, "BLOCK_F": bf, "num_warps": warps, "num_stages": stages}
        yield (
            f"ffn forward {n}x{m}",
            f"{tiles}",
            functools.partial(slice_ffn.slice_ffn_forward, *arguments, tiles=tiles),
            references[0],
        )
    for bn, bf, warps, stages in (
        (128, 64, 8, 1),
        (128, 64, 8, 2),
        (64, 64, 4, 1),
        (64, 64, 4, 2),
        (64, 64, 8, 2),
        (128, 32, 8, 2),
        (64, 32, 4, 2),
    ):
        tiles = {**split, "BLOCK_N": bn, "BLOCK_F": bf, "num_warps": warps, "num_stages": stages}
        yield (
            f"ffn dx {n}x{m}",
            f"{tiles}",
            functools.partial(slice_ffn.slice_ffn_input_gradient, g, *arguments, tiles=tiles),
            references[1],
        )
    for bn, bf, warps, stages in (
        (64, 64, 4, 2),
        (64, 64, 4, 3),
        (64, 64, 8, 2),
        (64, 32, 4, 2),
        (128, 64, 8, 2),
        (32, 64, 4, 3),
        (64, 32, 8, 2),
    ):
        tiles = {**split, "BLOCK_N": bn, "BLOCK_F": bf, "num_warps": warps, "num_stages": stages}
        yield (
            f"ffn dw {n}x{m}",
            f"{tiles}",
            functools.partial(slice_ffn.slice_ffn_weight_gradients, g, *arguments, tiles=tiles),
            references[2],
        )


def attentions(b: int, t: int, heads: int, size: int) -> Iterator[Candidate]:
    qkv, do = make(P, b, t, 3, heads, size), make(P, b, t, heads, size)

    lengths = torch.arange(b * P, device=qkv.device) % b * (t // 2) // b + t // 2  # half of the tokens at least
    mask = (torch.arange(t, device=qkv.device) < lengths[:, None])[:, None, None]

    def attend(x: Tensor, mask: Tensor | None = None) -> Tensor:
        q, k, v = (part.transpose(1, 2) for part in x.flatten(0, 1).unbind(2))
        return F.scaled_dot_product_attention(q, k, v, mask).transpose(1, 2).unflatten(0, (P, b))

    def sdpa(mask: Tensor | None = None) -> Tensor:
        return attend(qkv, mask)

    def sdpa_backward(mask: Tensor | None = None) -> Tensor:
        inputs = qkv.detach().requires_grad_()
        o = attend(inputs, mask)
        return torch.autograd.grad(o, inputs, do)[0]

    def reference_backward() -> Tensor:
        inputs = qkv.float().requires_grad_()
        o = attend(inputs)
        return torch.autograd.grad(o, inputs, do.float())[0]

    shape = f"{b}x{t}x{heads}x{size}"
    yield f"attention forward {shape}", "torch SDPA", sdpa, lambda: None
    yield f"attention forward and backward {shape}", "torch SDPA", sdpa_backward, lambda: None
    yield f"attention forward {shape}", "torch SDPA, padded texts", functools.partial(sdpa, mask), lambda: None
    yield (
        f"attention forward and backward {shape}",
        "torch SDPA, padded texts",
        functools.partial(sdpa_backward, mask),
        lambda: None,
    )
    if t > 128:
        return
    reference = attend(qkv.float())
    yield (
        f"attention forward {shape}",
        "ours",
        lambda: slice_attention.slice_attention_forward(qkv, None, None, 0.0, False),
        lambda: reference,
    )
    yield (
        f"attention backward {shape}",
        "ours",
        lambda: slice_attention.slice_attention_backward(do, qkv, None, None, 0.0, False),
        reference_backward,
    )


def microseconds(call: Callable[[], Any]) -> float:
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS):
            call()
    samples = []
    for _ in range(12):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        samples.append(start.elapsed_time(end) * 1e3 / CALLS)
    return sorted(samples[2:])[5]


def error(found: Any, wanted: Tensor | None) -> float | None:
    """Of the first result; several may lie one after the other in a flat tensor."""
    if wanted is None:
        return None
    found = (found[0] if isinstance(found, tuple) else found).flatten()[: wanted.numel()].view(wanted.shape)
    return float((found.float() - wanted.float()).norm() / wanted.float().norm())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--warm", help="only compile, part i of n: i/n")
    parser.add_argument("--only", default="", help="operations whose names start so, separated by commas")
    parser.add_argument("--shapes", default=",".join(SHAPES))
    arguments = parser.parse_args()
    torch.manual_seed(0)
    rows: list[dict[str, Any]] = []
    for shape in arguments.shapes.split(","):
        for index, (operation, variant, call, reference) in enumerate(candidates(*SHAPES[shape])):
            if not operation.startswith(tuple(arguments.only.split(","))):
                continue
            if arguments.warm:
                part, parts = map(int, arguments.warm.split("/"))
                if index % parts == part:
                    try:
                        call()
                    except Exception as problem:
                        print(operation, variant, type(problem).__name__, str(problem)[:100])
                continue
            row: dict[str, Any] = {"shape": shape, "operation": operation, "variant": variant}
            try:
                row["error"] = error(call(), reference())
                row["microseconds"] = round(microseconds(call), 2)
            except Exception as problem:  # a tiling that does not fit is a result too
                row["failed"] = f"{type(problem).__name__}: {str(problem)[:120]}"
            rows.append(row)
    if arguments.warm:
        return
    key = operator.itemgetter("shape", "operation")
    for (shape, operation), found in itertools.groupby(sorted(rows, key=key), key):
        print(f"{shape} {operation}")
        for row in sorted(found, key=lambda row: row.get("microseconds", 1e9))[:4]:
            time = row.get("microseconds", "failed")
            print(f"   {time} us  err {row.get('error')}  {row['variant']}  {row.get('failed', '')}")
    for row in rows:
        if row.get("error") is not None and not row["error"] < 2e-2:
            print("WRONG", row)
    if arguments.out:
        write(arguments.out, {"facts": facts(("torch", "triton")), "gpu": torch.cuda.get_device_name(), "rows": rows})


if __name__ == "__main__":
    main()
