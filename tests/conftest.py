"""Where there is no GPU, Triton's interpreter runs the kernels. It must be told before anything imports Triton."""

import os

import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")
