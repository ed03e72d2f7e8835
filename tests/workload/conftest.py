"""Programs built once per test run."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from gpu_agent.workload.builder import build
from tests.workload.workload_helpers import Built


@pytest.fixture(scope="session")
def tiny_gpt2() -> Built:
    return build("gpt2", layers=2, heads=2, width=32, context=16)


@pytest.fixture(scope="session")
def tokens() -> Tensor:
    """64 records of 17 skewed bytes, so that there is something to learn."""
    generator = torch.Generator().manual_seed(5)
    return (torch.rand((64, 17), generator=generator) ** 3 * 256).to(torch.uint8)


@pytest.fixture(scope="session")
def noisy_classifier() -> Built:
    return build("classifier", features=6, classes=3, hidden=(16, 8), batch_norm=True, dropout=0.25, seed=4)
