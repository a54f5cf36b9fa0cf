import pytest
import torch


@pytest.fixture(scope="package", autouse=True)
def one_thread():
    """The tensors are tiny: several threads would only wait for each other, most of all on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
