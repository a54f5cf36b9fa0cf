"""One torch thread: the tensors are tiny, and a second thread would only wait. And the mark of tests on a GPU."""

from pathlib import Path

import pytest
import torch

from .cases import DEVICE

CPU_ALONE = {"test_cpu.py", "test_gpu_code.py"}


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(items):
    for item in items:
        if DEVICE == "cuda" and item.path.parent == Path(__file__).parent and item.path.name not in CPU_ALONE:
            item.add_marker(pytest.mark.gpu)


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
