"""torch.linalg.svd of a batch of matrices, on the CPU with one matrix per thread.

torch hands the matrices of a batch to LAPACK one after another, and threads inside one SVD gain little or nothing at
the sizes of slices; docs/math.md has the figures.
"""

from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

# From this much work on (matrices * m * n * min(m, n)) the matrices are spread over threads: about 10 ms of one core,
# below which starting the threads costs what they win.
THREADS_FROM = 2**22


def batched_svd(a: Tensor, full_matrices: bool) -> tuple[Tensor, Tensor, Tensor]:
    """U, S and V^H of every matrix: (..., m, n) -> (..., m, .), (..., r), (..., ., n)."""
    threads = torch.get_num_threads()
    if not _takes_threads(a, threads):
        return torch.linalg.svd(a, full_matrices=full_matrices)

    def work(part: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        with torch.no_grad():  # the mode is per thread
            return torch.linalg.svd(part, full_matrices=full_matrices)

    matrices = a.flatten(0, -3)
    parts = matrices.tensor_split(min(len(matrices), 4 * threads))  # more parts than threads, so that none waits long
    try:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            found = list(pool.map(work, parts))
    finally:
        torch.set_num_threads(threads)  # the setting is per thread, but also the default of threads to come
    u, s, vh = (torch.cat(part).unflatten(0, a.shape[:-2]) for part in zip(*found, strict=True))
    return u, s, vh


def _takes_threads(a: Tensor, threads: int) -> bool:
    """Whether there is enough to share out, and nobody (autograd, a compiler, a functorch transform) watches."""
    if threads == 1 or a.device.type != "cpu" or type(a) is not Tensor or torch.compiler.is_compiling():
        return False
    if (torch.is_grad_enabled() and a.requires_grad) or torch._C._functorch.peek_interpreter_stack() is not None:
        return False
    return a.shape[:-2].numel() >= threads and a.numel() * min(a.shape[-2:]) >= THREADS_FROM
