"""Each defence taken away once: the test of the attack that it stops goes red. Nothing is called stopped by what nobody would miss."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shared.errors import GputError
from tests.adversary.mutant import Mutant
from tests.adversary.mutants import MUTANTS
from tests.adversary.rows import ROWS
from tests.adversary.visitor import Visitors
from tests.gpu.gpu_world import Refused, World
from tests.gpu.test_gpu_direct import DIRECT
from tests.gpu.test_gpu_direct import install as install_direct
from tests.gpu.test_gpu_paper import PAPER, Attacker, install

ROOT = Path(__file__).parents[2]
INSIDE = [name for name, mutant in MUTANTS.items() if mutant.inside]
QUICK = {"tags_are_ignored", "fences_kill_nothing", "keys_are_ratcheted", "every_key_commands_the_gpu"}
RED = (AssertionError, pytest.fail.Exception, Refused, GputError)
"""A test that fails by anything else is broken by the patch, and shows nothing."""


def function(mutant: Mutant) -> Callable[..., None]:
    path, _, name = mutant.test.partition("::")
    found: Callable[..., None] = getattr(importlib.import_module(path.removesuffix(".py").replace("/", ".")), name)
    return found


def marked(test: Callable[..., None]) -> set[str]:
    marks = getattr(test, "pytestmark", [])
    return {row for mark in marks if mark.name == "attack" for row in mark.args[0]}


def call(mutant: Mutant, device: World) -> None:
    """The test as pytest would call it, over this device. Fixtures are made here, before or after the patch as their test would."""
    test, params = function(mutant), dict(mutant.params)  # type: ignore[arg-type]  # a dictionary where it is `inside`
    made: dict[str, Callable[[], Any]] = {
        "world": lambda: device, "device": lambda: device, "visitors": lambda: _visitors(device, params["mode"]),
        "attacker": lambda: _attacker(device), "holder": lambda: _direct_holder(device),
        "monkeypatch": pytest.MonkeyPatch,
    }  # fmt: skip
    wanted = inspect.signature(test).parameters
    arguments = {name: params[name] if name in params else made[name]() for name in wanted}
    try:
        test(**arguments)
    finally:
        if "monkeypatch" in arguments:
            arguments["monkeypatch"].undo()


def _visitors(device: World, mode: Any) -> Visitors:
    made = Visitors(device, mode)
    made.set_up()
    return made


def _attacker(device: World) -> Attacker:
    device.set_up(**PAPER)
    return Attacker(install(device))


def _direct_holder(device: World) -> Any:
    device.set_up(**DIRECT)
    return install_direct(device)


def fresh(device: World) -> World:
    """Of the same device, without what a session before left here."""
    device.now[0] = 1_800_000_000.0
    return World(device.device, device.hbm, device.compute, device.now, device.faults)


@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in INSIDE])
def test_the_rows_test_goes_red_at_the_device(name: str, device: World) -> None:
    mutant = MUTANTS[name]
    call(mutant, fresh(device))
    with pytest.MonkeyPatch.context() as patch:
        mutant.remove(patch)
        with pytest.raises(RED):
            call(mutant, fresh(device))
        assert device.faults == [], "the patch broke the device instead of taking something away"


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, mutant in MUTANTS.items() if not mutant.inside])
def test_the_rows_test_goes_red_elsewhere(name: str) -> None:
    mutant = MUTANTS[name]
    options = [
        "-p",
        "tests.adversary.without",
        "--without",
        name,
        "-p",
        "no:cacheprovider",
        "-q",
        "-x",
        "-m",
        "not slow",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, f"{mutant.test}{mutant.params}"], cwd=ROOT, capture_output=True, text=True, timeout=300,
        check=False,
    )  # fmt: skip
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout[-3000:] + done.stderr[-3000:]
    assert " error" not in done.stdout.splitlines()[-1], done.stdout[-3000:]


def test_every_mutant_names_a_test_that_carries_its_rows() -> None:
    for name, mutant in MUTANTS.items():
        assert set(mutant.rows) <= set(ROWS), name
        assert set(mutant.rows) <= marked(function(mutant)), name
