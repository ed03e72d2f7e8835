"""Prints the project's runtime requirements, or those of the extras that are named, from pyproject.toml, one a line.

For an image layer that survives changes of code. Usage: dependencies.py [EXTRA …]
"""

import sys
import tomllib
from pathlib import Path

project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
extras = [project["optional-dependencies"][extra] for extra in sys.argv[1:]]
print("\n".join(line for lines in extras or [project["dependencies"]] for line in lines))
