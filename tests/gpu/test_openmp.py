"""How PyTorch's threads wait for one another: said in words that its OpenMP knows."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from gpu_agent.compute.openmp import SPINS, with_short_spins

STATED = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")


@pytest.mark.parametrize("stated", [{}, {"GOMP_SPINCOUNT": "7"}, {"OMP_WAIT_POLICY": "ACTIVE"}])
def test_threads_spin_for_a_short_time_unless_the_operator_says_otherwise(stated: dict[str, str]) -> None:
    before = {"HOME": "/", **stated}
    kept = dict(before)
    assert with_short_spins(before) == {"HOME": "/", **(stated or {"GOMP_SPINCOUNT": str(SPINS)})}
    assert before == kept


def test_pytorchs_openmp_knows_the_word() -> None:
    environment = {key: value for key, value in os.environ.items() if key not in STATED}
    told = subprocess.run(
        [sys.executable, "-c", "import torch"],
        env={**with_short_spins(environment), "OMP_DISPLAY_ENV": "VERBOSE"}, capture_output=True, text=True, check=True,
    ).stderr  # fmt: skip
    assert f"GOMP_SPINCOUNT = '{SPINS}'" in told
