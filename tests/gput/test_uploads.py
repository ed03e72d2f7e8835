"""What goes along with a program that is uploaded: the weights beside it, if they are its own and the session starts from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gput.uploads import with_weights
from tests.world.fixtures import material
from tests.world.world_material import Material

__all__ = ["material"]


@pytest.fixture
def made(material: Material, tmp_path: Path) -> Material:
    (tmp_path / "p.gput").write_bytes(material.archive)
    (tmp_path / "p.safetensors").write_bytes(material.weights)
    return material


def test_weights_beside_their_program_go_along_once(made: Material, tmp_path: Path) -> None:
    program, weights, other = tmp_path / "p.gput", tmp_path / "p.safetensors", tmp_path / "other"
    other.write_bytes(b"held-out")
    assert with_weights(made.manifest(), [other, program]) == [other, program, weights]
    assert with_weights(made.manifest(), [weights, program]) == [weights, program]
    assert with_weights(made.manifest(), [other]) == [other]


@pytest.mark.parametrize("starts", [{"initial_weights": "ab" * 32}, {"predecessor": "a session's end"}])
def test_weights_that_the_session_does_not_start_from_stay(
    made: Material, tmp_path: Path, starts: dict[str, Any]
) -> None:
    program = tmp_path / "p.gput"
    assert with_weights(made.manifest().model_copy(update=starts), [program]) == [program]


@pytest.mark.parametrize("content", [b"others", None])
def test_other_weights_under_that_name_stay(made: Material, tmp_path: Path, content: bytes | None) -> None:
    program, weights = tmp_path / "p.gput", tmp_path / "p.safetensors"
    weights.unlink()
    if content is not None:
        weights.write_bytes(content)
    assert with_weights(made.manifest(), [program]) == [program]
