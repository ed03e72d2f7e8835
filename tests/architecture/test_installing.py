"""What the product tells people to install comes from this repository: no index has its name, and a stranger might register it there."""

from __future__ import annotations

from pathlib import Path

from shared.errors import installing

ROOT = Path(__file__).parents[2]
ROOMS = ("shared", "orchestrator", "data_holder", "gpu_agent", "gput", "docs", "deploy", "docker")
TEXT = (".py", ".md", ".toml", ".yml", ".yaml", ".ipynb", ".js", ".html", ".sh", ".service")


def test_nobody_is_told_to_install_the_package_by_its_name() -> None:
    files = [path for room in ROOMS for path in (ROOT / room).rglob("*") if path.suffix in TEXT]
    files += [path for path in ROOT.iterdir() if path.is_file() and path.suffix in (".md", ".yml", "")]
    assert len(files) > 500
    named = (
        "gpu-travelling[",
        "pip install gpu-travelling",
        "pip install 'gpu-travelling",
        'pip install "gpu-travelling',
    )
    assert [path for path in files if any(words in path.read_text(errors="replace") for words in named)] == []
    assert "pip install '.[tracing]'" in installing("tracing")
