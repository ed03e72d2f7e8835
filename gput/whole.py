"""A file that is written whole, or stays as it was: whoever is interrupted leaves no half of one. Knows no command."""

from __future__ import annotations

from pathlib import Path


def replace_whole(target: Path, data: bytes) -> None:
    """Put `data` into a file, new or not. A link's file is replaced and not the link; what is no file (a pipe, a terminal) is written to.

    Raises:
        OSError: nothing changed.
    """
    if target.exists() and not target.is_file():
        target.write_bytes(data)
        return
    place = target.resolve()
    partial = place.with_name(place.name + ".part")
    try:
        partial.write_bytes(data)
        if place.exists():
            partial.chmod(place.stat().st_mode & 0o7777)
        partial.replace(place)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
