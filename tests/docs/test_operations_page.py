"""What the operators' page must not leave out: each step that this system refuses to go on without."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()


def section(heading: str) -> str:
    """The text under one heading of the second level."""
    found = re.search(rf"^## {re.escape(heading)}.*?\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None, heading
    return found[1]


def test_a_new_release_of_an_emulated_installation_is_manufactured_between_install_and_start() -> None:
    """Without it every verifier refuses the new code, and the emulated device does not boot."""
    told = " ".join(section("A new release").split())
    order = [
        told.index(word) for word in ("Stop, install, start", "`python -m gpu_agent.platform manufacture`", "schema")
    ]
    assert order == sorted(order)
    assert "between install and start" in told
    for code in ("bad-device", "cvm-measurement"):  # what tells who forgot it
        assert f"`{code}`" in told
