"""What the emulated TDX module measures: the installed code of a confidential VM. Knows no key and no quote.

MRTD = SHA-384 of CBOR ["gput/mrtd/1", [[path, SHA-384 of the file], …]] over all files of the given trees, sorted by path; a path
begins with its tree's own name. Byte-code caches are left out, everything else counts: templates and migrations run as well.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Iterator
from pathlib import Path

from shared.canonical import cbor_bytes, sha384
from shared.errors import ConfigurationError

MEASUREMENT_PROFILE = "gput/mrtd/1"


def measure_code(trees: Iterable[Path]) -> bytes:
    """MRTD (48 bytes) of these package folders.

    Raises:
        ConfigurationError: `nothing-to-measure`, a tree is absent or empty, or two trees have one name.
    """
    files: dict[str, bytes] = {}
    for tree in trees:
        found = dict(_files(tree))
        if not found or found.keys() & files.keys():
            raise ConfigurationError(f"{tree.name} cannot be measured as code of a CVM", code="nothing-to-measure")
        files |= found
    if not files:
        raise ConfigurationError("a CVM without code cannot be measured", code="nothing-to-measure")
    return sha384(cbor_bytes([MEASUREMENT_PROFILE, [[path, files[path]] for path in sorted(files)]]))


def _files(tree: Path) -> Iterator[tuple[str, bytes]]:
    for path in tree.rglob("*"):
        relative = path.relative_to(tree)
        if path.is_file() and "__pycache__" not in relative.parts:
            yield f"{tree.name}/{relative.as_posix()}", sha384(path.read_bytes())


def installed_package(name: str) -> Path:
    """Folder of an installed top-level package, without importing it. Raises: ConfigurationError."""
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise ConfigurationError(f"package {name} is not installed", code="nothing-to-measure")
    return Path(next(iter(spec.submodule_search_locations)))
