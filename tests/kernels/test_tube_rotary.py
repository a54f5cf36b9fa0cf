from functools import partial

import pytest
import torch

from lformer.kernels.tube_rotary import MAX_TUBE, tube_rotary, tube_rotary_reference
from lformer.nn import RotaryPositions

from .cases import DEVICE, DTYPES, assert_parity, draw

# P, B, T, H, E: odd and prime sizes, heads that are no power of two, the smallest, more than a block.
SIZES = [(1, 2, 7, 3, 16), (2, 1, 5, 1, 2), (3, 2, 5, 1, 6), (4, 3, 3, 2, 24), (4, 1, 67, 2, 16), (8, 1, 3, 1, 96)]


def case(p, b, t, h, e, dtype, *, matrix="learned", shared=False):
    ids = torch.stack([3 * i + torch.arange(t) for i in range(1 if shared else b)])
    cos, sin = RotaryPositions(e)(ids.to(DEVICE))
    tensors = {"qkv": draw(p, b, t, 3, h, e, dtype=dtype), "matrix": None, "cos": cos, "sin": sin}
    if matrix is not None:
        tensors["matrix"] = draw(p, p, dtype=torch.float32, scale=p**-0.5, seed=1)
        tensors["matrix"].requires_grad_(matrix == "learned")
    return tensors


kernel = partial(tube_rotary, backend="triton")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("matrix", ["learned", "fixed", None])
@pytest.mark.parametrize("size", SIZES)
def test_outputs_and_gradients(size, matrix, dtype):
    assert_parity(kernel, tube_rotary_reference, case(*size, dtype, matrix=matrix), dtype)


@pytest.mark.parametrize("matrix", ["learned", None])
@pytest.mark.parametrize("p", [1, 3])
def test_positions_that_all_sequences_share(p, matrix):
    tensors = case(p, 5, 7, 2, 6, torch.float32, matrix=matrix, shared=True)
    assert_parity(kernel, tube_rotary_reference, tensors, torch.float32)


def test_many_blocks_in_one_program(monkeypatch):
    from lformer.kernels.gpu import tube_rotary as gpu

    monkeypatch.setattr(gpu, "BACKWARD_PROGRAMS", 3)
    assert_parity(kernel, tube_rotary_reference, case(4, 3, 67, 2, 18, torch.float32), torch.float32)


@pytest.mark.parametrize("matrix", ["fixed", None])
def test_more_slices_than_registers(matrix):
    """They are mixed in a pass of their own; without a matrix any number is as good."""
    tensors = case(2 * MAX_TUBE, 2, 3, 1, 4, torch.float32, matrix=matrix)
    assert_parity(kernel, tube_rotary_reference, tensors, torch.float32)


@pytest.mark.parametrize("matrix", ["learned", None])
def test_as_attention_uses_it(matrix):
    """Gradients with other strides than the outputs have, as torch's attention returns them."""

    def attend(call):
        def attention(**tensors):
            q, k, v = (part.flatten(0, 1).transpose(1, 2) for part in call(**tensors))
            return torch.softmax(q @ k.mT, dim=-1) @ v

        return attention

    tensors = case(3, 2, 5, 2, 6, torch.float32, matrix=matrix)
    assert_parity(attend(kernel), attend(tube_rotary_reference), tensors, torch.float32)


@pytest.mark.parametrize("layout", ["tokens last", "expanded", "different"])
def test_strides_of_gradients(layout):
    tensors = case(2, 3, 5, 2, 8, torch.float32)

    def weigh(call):
        def weighed(**tensors):
            q, k, v = call(**tensors)
            if layout == "tokens last":
                return tuple(part.transpose(2, 3) * 1.0 for part in (q, k, v))
            if layout == "expanded":
                return q.sum() + k.sum() + v.sum()
            return q.transpose(2, 3) * 1.0, k * 1.0, v.transpose(1, 2) * 1.0

        return weighed

    assert_parity(weigh(kernel), weigh(tube_rotary_reference), tensors, torch.float32)


@pytest.mark.parametrize("used", [0, 1, 2])
def test_only_one_of_them_is_used(used):
    tensors = case(3, 2, 5, 1, 4, torch.float32)
    call, reference = (lambda f=f, **inputs: f(**inputs)[used] for f in (kernel, tube_rotary_reference))
    assert_parity(call, reference, tensors, torch.float32)


def test_strides_of_inputs_are_taken_care_of():
    tensors = case(3, 5, 5, 2, 6, torch.float32, shared=True)

    def turned(f):
        return lambda qkv, matrix, cos, sin: f(qkv.transpose(1, 2), matrix.T, cos.mT.contiguous().mT, sin)

    assert_parity(turned(kernel), turned(tube_rotary_reference), tensors, torch.float32)


@pytest.mark.parametrize("matrix", ["learned", None])
@pytest.mark.parametrize("empty", [(4, 0, 3, 2, 4), (4, 2, 0, 2, 4)])
def test_nothing_to_do(empty, matrix):
    p, b, t, h, e = empty
    tensors = case(p, max(b, 1), max(t, 1), h, e, torch.float32, matrix=matrix)
    cut = {name: tensors[name][:, :t] for name in ("cos", "sin")}
    qkv = tensors["qkv"].detach()[:, :b, :t].requires_grad_()
    parts = kernel(qkv, tensors["matrix"], **cut)
    sum(part.sum() for part in parts).backward()
    assert all(part.shape == empty for part in parts)
    assert qkv.grad.shape == qkv.shape
    assert matrix is None or not tensors["matrix"].grad.any()


@pytest.mark.parametrize("backend", ["torch", "triton"])
@pytest.mark.parametrize("matrix", ["learned", None])
def test_without_positions_it_only_mixes(matrix, backend):
    tensors = case(3, 2, 5, 2, 6, torch.float32, matrix=matrix)

    def mix(qkv, matrix, cos, sin):
        parts = qkv.unbind(3)
        return parts if matrix is None else tuple(torch.einsum("jk,k...->j...", matrix, part) for part in parts)

    call = lambda qkv, matrix, cos, sin: tube_rotary(qkv, matrix, backend=backend)  # noqa: E731
    assert_parity(call, mix, tensors, torch.float32)


def test_only_a_learned_matrix_needs_the_input():
    saved = []
    for matrix in ("learned", "fixed"):
        tensors = case(2, 1, 3, 1, 4, torch.float32, matrix=matrix)
        with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t.shape) or t, lambda t: t):
            kernel(**tensors)
        assert (tensors["qkv"].shape in saved) == (matrix == "learned")
        saved.clear()


@pytest.mark.parametrize("matrix", ["learned", "fixed", None])
def test_compiles_as_one_graph(matrix):
    torch._dynamo.reset()
    call = torch.compile(kernel, fullgraph=True, backend="aot_eager")
    assert_parity(call, tube_rotary_reference, case(3, 2, 5, 2, 6, torch.float32, matrix=matrix), torch.float32)


@pytest.mark.parametrize("matrix", ["learned", None])
def test_the_operation_is_registered_as_it_behaves(matrix):
    tensors = case(1, 2, 3, 1, 4, torch.float32, matrix=matrix)
    from lformer.kernels.gpu.tube_rotary import tube_rotary_op

    torch.library.opcheck(tube_rotary_op, tuple(tensors.values()))


@pytest.mark.parametrize("wrong", ["matrix", "positions", "one sequence's positions", "backward", "sums"])
def test_what_is_wrong_is_noticed(wrong, monkeypatch):
    from lformer.kernels.gpu import tube_rotary as gpu

    def call(qkv, matrix, cos, sin):
        if wrong == "matrix":
            matrix = matrix.T
        elif wrong == "positions":
            sin = -sin
        elif wrong == "one sequence's positions":
            cos, sin = cos[:1], sin[:1]
        return kernel(qkv, matrix, cos, sin)

    if wrong == "backward":
        exact = torch.ops.lformer.tube_rotary_backward
        turned = lambda dq, dk, dv, qkv, matrix, cos, sin: exact(dq, dk, dv, qkv, matrix, cos, -sin)  # noqa: E731
        monkeypatch.setattr(torch.ops.lformer, "tube_rotary_backward", turned)
    if wrong == "sums":
        monkeypatch.setattr(gpu, "add_parts", lambda parts, out: out.copy_(parts[1:].sum(0)))
    with pytest.raises(AssertionError, match="relative error"):
        assert_parity(call, tube_rotary_reference, case(3, 2, 67, 2, 6, torch.float32), torch.float32)
