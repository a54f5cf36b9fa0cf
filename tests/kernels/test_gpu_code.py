"""The compiler for GPUs accepts the kernels, with some seconds of work each, and what it makes fits on one; on any
machine.
"""

import os
import subprocess
import sys

import pytest

from lformer.kernels.backend import SHARED_MEMORY

from .compile_for_gpu import CASES

# Half a minute of one processor at most; most kernels take one or two seconds. Seconds depend on what else the machine
# does (20 of a machine alone were 40 of a busy one), but they follow from what the compiler has before it: lines of
# Triton's language as read and as inlined and unrolled, and of LLVM's. Most have 1,000, 1,000 and 5,000.
MOST_LINES = (8_000, 8_000, 50_000)


PARTS = [list(CASES)[i::3] for i in range(3)]  # to import torch and Triton thrice, and not once a case


@pytest.mark.parametrize("cases", PARTS, ids="; ".join)
def test_compiles_and_fits(cases):
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "tests.kernels.compile_for_gpu", *cases]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    lines = done.stdout.splitlines()
    assert len(lines) > len(cases)
    for line in lines:
        name, dtype, shared, tensor_cores, *lengths = line.split()[:7]
        assert int(shared) <= SHARED_MEMORY, line
        assert all(int(length) <= most for length, most in zip(lengths, MOST_LINES, strict=True)), line
        if ("ffn" in name or "gemm" in name) and dtype == "torch.bfloat16":
            assert tensor_cores == "True", f"no wgmma instructions: {line}"
