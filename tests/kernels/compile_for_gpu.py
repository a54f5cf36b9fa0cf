"""Compile the kernels for a Hopper GPU on a machine without one, and print what they need. Run by test_gpu_code.py.

The interpreter takes more than the compiler does, and knows nothing of shared memory.
"""

import sys
import time
import warnings

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from lformer.kernels.gpu import (
    launch,
    slice_attention,
    slice_ffn,
    slice_gemm,
    slice_matmul,
    slice_products,
    tube_activation,
    tube_mix,
    tube_norm,
    tube_rotary,
)

warnings.simplefilter("ignore")  # Triton's own, about its next version
NAMES = {torch.bfloat16: "*bf16", torch.float32: "*fp32"}
FLOATS = {"eps", "dropout", "scale"}
IN_FLOAT32 = {
    "mean_ptr",
    "rstd_ptr",
    "sums_ptr",
    "parts_ptr",
    "inverse_ptr",
    "matrix_ptr",
    "d_ptr",
    "cos_ptr",
    "sin_ptr",
}


def check(kernel, dtype, options, descriptors=()):
    """Compile with every pointer and size a multiple of 16, as they mostly are; `descriptors`: the blocks of those."""
    options, descriptors = dict(options), dict(descriptors)
    launch_options = {name: options.pop(name) for name in ("num_warps", "num_stages") if name in options}
    signature = {}
    for name in kernel.arg_names:
        if name in options:
            signature[name] = "constexpr"
        elif name in descriptors:
            signature[name] = f"tensordesc<{NAMES[dtype].strip('*')}{descriptors[name]}>"
        elif name.endswith("_ptr"):
            signature[name] = "*i64" if name == "seed_ptr" else "*fp32" if name in IN_FLOAT32 else NAMES[dtype]
        else:
            signature[name] = "fp32" if name in FLOATS else "i32"
    unaligned = {*options, *descriptors, *FLOATS}
    aligned = [i for i, name in enumerate(kernel.arg_names) if name not in unaligned]
    source = ASTSource(
        fn=kernel,
        signature=signature,
        constexprs={(kernel.arg_names.index(name),): value for name, value in options.items()},
        attrs={(i,): [["tt.divisibility", 16]] for i in aligned},
    )
    started = time.process_time()
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=launch_options)
    seconds = time.process_time() - started
    tensor_cores = "wgmma" in compiled.asm["ptx"]
    lines = [compiled.asm[stage].count("\n") for stage in ("source", "ttir", "llir")]
    found = (kernel.__name__, dtype, compiled.metadata.shared, tensor_cores, *lines)
    print(*found, f"{seconds:.1f} s", options, flush=True)


def tube_norms(p, m):
    flags = {"HAS_INVERSE": True, "HAS_MATRIX": True, "HAS_DROPOUT": True, "POST": True, "P": p}
    kernel, tiles = tube_norm._forward_kernel(p, m)
    check(kernel, torch.bfloat16, {**flags, **tiles, "HAS_BIAS": True, "WRITE_NORM": True, "KEEP_SUM": True})
    kernel, tiles = tube_norm._backward_kernel(p, m)
    check(kernel, torch.bfloat16, {**flags, **tiles, "HAS_DY": True, "HAS_DYH": True, "WRITE_DROPPED": True})


def ffn_forward(m, dtype=torch.bfloat16):
    options = {"ACTIVATION": "relu", "PRECISION": "ieee"}
    check(slice_ffn.slice_ffn_forward_kernel, dtype, {**slice_ffn._row_tiles(dtype, m), **options})


def ffn_backward(m, dtype=torch.bfloat16):
    options = {"ACTIVATION": "gelu", "PRECISION": "ieee"}
    check(slice_ffn.slice_ffn_dx_kernel, dtype, {**slice_ffn._row_tiles(dtype, m, backward=True), **options})
    check(slice_ffn.slice_ffn_dw_kernel, dtype, {**slice_ffn._weight_tiles(dtype, m), **options})


def products(inner, outer, dtype=torch.bfloat16):
    options = {"PROLOGUE": "gelu", "PRECISION": "ieee", "A_CHUNK": 0}
    matmul = {**slice_matmul._matmul_tiles(dtype, inner, outer), **options, "C_CHUNK": outer // 4}
    flags = {"EPILOGUE": "relu", "HAS_BIAS": True, "HAS_AUX": True}
    check(slice_matmul.slice_matmul_kernel, dtype, {**matmul, **flags})
    outer_options = {**slice_matmul._outer_tiles(dtype, outer, inner), **options, "HAS_SUMS": True}
    check(slice_matmul.slice_outer_kernel, dtype, outer_options)


def gemms():
    """Every tiling that `_tiles` chooses from, and the one of the backward pass."""
    forward = {"B_TRANSPOSED": True, "ACTIVATION": "relu", "HAS_BIAS": True, "HAS_AUX": False}
    backward = {"B_TRANSPOSED": False, "ACTIVATION": "gelu", "HAS_BIAS": False, "HAS_AUX": True}
    sizes = [(8192, 64, 192), (16384, 96, 192), (8192, 192, 768), (8192, 768, 192), (16384, 512, 2048)]
    tilings = {tuple(slice_gemm._tiles(*size).items()) for size in sizes}
    assert len(tilings) == 3
    for tiles, flags in [*((dict(each), forward) for each in tilings), (slice_gemm.SMALL_TILES, backward)]:
        options = {name: size for name, size in tiles.items() if name != "programs"}
        n, o, k = (options[name] for name in ("BLOCK_N", "BLOCK_O", "BLOCK_K"))
        blocks = {"c": [1, n, o], "a": [1, n, k], "b": [1, o, k] if flags["B_TRANSPOSED"] else [1, k, o]}
        check(slice_gemm.slice_gemm_kernel, torch.bfloat16, {**options, **flags}, blocks)


def attention(length, size, dtype=torch.bfloat16):
    qkv = torch.empty(1, 1, length, 3, 1, size, dtype=dtype)
    options = slice_attention._options(qkv, qkv, 0.1, causal=True)
    check(
        slice_attention.slice_attention_forward_kernel, dtype, {**options, "BLOCK_Q": min(64, length), "num_warps": 4}
    )
    check(slice_attention.slice_attention_backward_kernel, dtype, {**options, "num_warps": 8})


def tube_activations(p, learned, gated=False):
    options = {"P": p, "ACTIVATION": "silu" if gated else "gelu", "GATED": gated, "num_warps": 4}
    forward = {**options, "BLOCK": tube_activation._forward_block(p)}
    check(tube_activation.tube_activation_kernel, torch.bfloat16, forward)
    backward = {**options, "LEARNED": learned, "WHOLE": True, **tube_activation._backward_tiles(p, learned, gated)}
    check(tube_activation.tube_activation_backward_kernel, torch.bfloat16, backward)


def tube_rotaries(p, size, has_matrix, learned=False):
    heads = {"H": 2}
    options = tube_rotary._options(p, size, has_matrix=has_matrix)
    check(tube_rotary.tube_rotary_kernel, torch.bfloat16, {**heads, **options})
    options = tube_rotary._options(p, size, has_matrix=has_matrix, sums=learned)
    check(tube_rotary.tube_rotary_backward_kernel, torch.bfloat16, {**heads, **options, "LEARNED": learned})


def slice_sums(p, *, bias=False, whole=True):
    """The inner products of slices, of which one side is given a bias or is normed."""
    flags = {"P": p, "HAS_BIAS": bias, "HAS_NORM": not bias, "WHOLE": whole}
    check(slice_products.slice_products_kernel, torch.bfloat16, {**flags, **slice_products._tiles(p, 2)})


CASES = {
    "tube_norm": lambda: (tube_norms(4, 192), tube_norms(3, 33), tube_norms(1, 992), tube_norms(6, 96)),
    "tube_norm, 8 slices": lambda: tube_norms(8, 96),
    "tube_norm, more slices": lambda: (tube_norms(16, 48), tube_norms(16, 512), tube_norms(9, 910)),
    "slice_gemm": gemms,
    "slice_ffn": lambda: (ffn_forward(32), ffn_forward(192), ffn_forward(256), ffn_backward(64)),
    "float32": lambda: (ffn_forward(64, torch.float32), ffn_backward(64, torch.float32)),
    "products": lambda: (products(32, 96), products(256, 768), products(64, 64, torch.float32)),
    "attention": lambda: (attention(128, 64), attention(128, 128), attention(128, 64, torch.float32)),
    "tube_activation": lambda: (tube_activations(4, True), tube_activations(4, True, True), tube_activations(8, False)),
    "tube_rotary": lambda: (
        tube_rotaries(1, 64, False),
        tube_rotaries(4, 64, True, True),
        tube_rotaries(8, 64, True, True),
    ),
    "slice_products": lambda: (slice_sums(4), slice_sums(8, bias=True), slice_sums(16), slice_sums(3, whole=False)),
    "small": lambda: (
        check(tube_mix.tube_mix_kernel, torch.bfloat16, {"P": 4, "TRANSPOSED": True, "BLOCK": 1024}),
        check(tube_mix.tube_mix_kernel, torch.bfloat16, {"P": 16, "TRANSPOSED": True, "BLOCK": 256}),
        check(launch.add_parts_kernel, torch.bfloat16, {"BLOCK_P": 16, "BLOCK": 128}),
        check(slice_matmul.column_sums_kernel, torch.bfloat16, {"BLOCK_N": 16, "BLOCK_G": 256}),
    ),
}

if __name__ == "__main__":
    for case in sys.argv[1:]:
        CASES[case]()
