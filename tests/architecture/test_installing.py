"""What the product tells people to install comes from this repository: no index has its name, and a stranger might register it there.
And it leaves a clone's installation the clone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from shared.errors import installing

ROOT = Path(__file__).parents[2]
ROOMS = ("shared", "orchestrator", "data_holder", "gpu_agent", "gput", "docs", "deploy", "docker")
TEXT = (".py", ".md", ".toml", ".yml", ".yaml", ".ipynb", ".js", ".html", ".sh", ".service")


def files() -> Iterator[Path]:
    for room in ROOMS:
        yield from (path for path in (ROOT / room).rglob("*") if path.suffix in TEXT)
    yield from (path for path in ROOT.iterdir() if path.is_file() and path.suffix in (".md", ".yml", ".toml", ""))


def test_nobody_is_told_to_install_the_package_by_its_name() -> None:
    assert len(list(files())) > 500
    named = (
        "gpu-travelling[",
        "pip install gpu-travelling",
        "pip install 'gpu-travelling",
        'pip install "gpu-travelling',
    )
    assert [path for path in files() if any(words in path.read_text(errors="replace") for words in named)] == []
    assert "pip install --editable '.[tracing]'" in installing("tracing")


def test_an_extra_is_added_to_the_clone_and_puts_no_frozen_copy_in_its_place() -> None:
    """`make setup` installs the clone as it stands; without --editable, `git pull` and every edit would be without effect from then on."""
    lines = [(path, line) for path in files() for line in path.read_text(errors="replace").splitlines()]
    installs = [(path, line) for path, line in lines if re.search(r"\bpip\b.*['\"]\.\[", line)]
    assert {path.name for path, _ in installs} >= {"Makefile", "errors.py", "operations.md", "problems.md", "digits.md"}
    assert [(path, line) for path, line in installs if not re.search(r"--editable ['\"]\.\[", line)] == []
