"""The compiler for GPUs accepts the kernels, in some seconds each, and what it makes fits on one; on any machine."""

import os
import subprocess
import sys

import pytest

from lformer.kernels.backend import SHARED_MEMORY

from .compile_for_gpu import CASES

MOST_SECONDS = 30  # of one processor; most kernels take one or two, tube_norm up to ten


@pytest.mark.parametrize("case", CASES)
def test_compiles_and_fits(case):
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "tests.kernels.compile_for_gpu", case]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    lines = done.stdout.splitlines()
    assert lines
    for line in lines:
        name, dtype, shared, tensor_cores, seconds = line.split()[:5]
        assert int(shared) <= SHARED_MEMORY, line
        assert float(seconds) < MOST_SECONDS, line
        if ("ffn" in name or "gemm" in name) and dtype == "torch.bfloat16":
            assert tensor_cores == "True", f"no wgmma instructions: {line}"
