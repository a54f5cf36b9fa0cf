"""Where there is no GPU, Triton's interpreter runs the kernels. It must be told before anything imports Triton."""

import importlib.util
import os

import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")


def mend_interpreter() -> None:
    """Triton before 3.7 makes integers of arrays of one number, loop bounds, in a way that numpy 2.4 refuses.

    Earlier versions of numpy warn of it, which here is an error too. triton-lang/triton issue 9171.
    """
    from triton.runtime import interpreter

    patch = interpreter._patch_lang_tensor

    def patch_with_index(tensor, *scope):
        patch(tensor, *scope)
        tensor.__index__ = lambda self: int(self.handle.data.item())

    interpreter._patch_lang_tensor = patch_with_index


if os.environ.get("TRITON_INTERPRET") == "1" and importlib.util.find_spec("triton"):
    mend_interpreter()
