"""One thread per process, and the devices that this machine has."""

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(params=["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"])
def device(request):
    return request.param
