"""Prints the project's runtime requirements from pyproject.toml, one a line, for an image layer that survives changes of code."""

import tomllib
from pathlib import Path

print("\n".join(tomllib.loads(Path("pyproject.toml").read_text())["project"]["dependencies"]))
