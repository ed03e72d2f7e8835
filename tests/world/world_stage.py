"""A living world for all tests of a folder: its services on a thread of their own. Knows no kind of stage in particular."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, TypeVar

import pytest

from shared.errors import EmulationWarning
from tests.world.world_material import Material, make_material


class Closable(Protocol):
    """What runs until it is closed."""

    def close(self) -> None:
        """End it."""


S = TypeVar("S", bound=Closable)


@contextmanager
def on_stage(kind: Callable[[Path, Material], S], folders: pytest.TempPathFactory) -> Iterator[S]:
    """A stage of this kind over material of its own, closed at the end; that its hardware is emulated needs no saying."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EmulationWarning)
        stage = kind(folders.mktemp("stage"), make_material(folders.mktemp("material") / "installation"))
    yield stage
    stage.close()
