"""A user's module that ends the process is told of like one that raises: with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpu_agent.workload.user_code import source_of
from shared.errors import InvalidProgram


@pytest.mark.parametrize("text", ["import sys\nsys.exit(3)\n", "def program():\n    raise SystemExit(3)\n"])
def test_a_module_that_ends_the_process_is_said(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"ends_{len(text)}"
    (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(InvalidProgram, match=rf"raised SystemExit: 3 \({name}\.py, line 2") as found:
        source_of(f"{name}:program", {})
    assert found.value.code == "user-code-failed"
