"""The SVD with one matrix per thread is torch's, and leaves no trace."""

from collections.abc import Iterator

import pytest
import torch

from lformer.algebra import batched_svd, singular_tubes
from lformer.algebra.batched_svd import _takes_threads


@pytest.fixture
def three_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(batched_svd, "THREADS_FROM", 0)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("three_threads")
@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("shape", [(7, 5, 4), (2, 3, 4, 6), (13, 3, 3)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex64])
def test_threads_give_what_torch_gives(shape: tuple[int, ...], full: bool, dtype: torch.dtype) -> None:
    a = torch.randn(shape, dtype=dtype)
    assert _takes_threads(a, 3)
    for ours, expected in zip(batched_svd.batched_svd(a, full), torch.linalg.svd(a, full_matrices=full), strict=True):
        torch.testing.assert_close(ours, expected)
    assert torch.get_num_threads() == 3


@pytest.mark.usefixtures("three_threads")
def test_torch_is_alone_where_somebody_watches() -> None:
    a = torch.randn(6, 4, 4)
    assert not _takes_threads(a.clone().requires_grad_(), 3)
    assert not _takes_threads(a, 1)
    assert not _takes_threads(a[:2], 3)
    seen = []

    def look(x: torch.Tensor) -> torch.Tensor:
        seen.append(_takes_threads(x, 3))
        return singular_tubes(x)

    mapped = torch.vmap(look)(torch.randn(2, 4, 4, 6))
    assert seen == [False]
    assert mapped.shape == (2, 4, 6)


@pytest.mark.usefixtures("three_threads")
def test_an_error_in_a_thread_reaches_the_caller() -> None:
    a = torch.randn(6, 4, 4)
    a[3] = float("nan")
    with pytest.raises(torch.linalg.LinAlgError):
        batched_svd.batched_svd(a, False)
    assert torch.get_num_threads() == 3
