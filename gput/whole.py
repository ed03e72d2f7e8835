"""A file that is written whole, or stays as it was: whoever is interrupted leaves no half of one. Knows no command."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_NAME: Final = 40
"""Characters of a target's name in its draft's: whole, a name as long as the system takes would leave no room for what is added."""


def replace_whole(target: Path, data: bytes) -> None:
    """Put `data` into a file, new or not. A link's file is replaced and not the link; what is no file (a pipe, a terminal) is written to.

    Raises:
        OSError: nothing changed.
    """
    with drafted(target) as draft:
        draft.write_bytes(data)


@contextmanager
def drafted(target: Path) -> Iterator[Path]:
    """An empty file to write in place of `target`, which gets what it holds once the block has ended well. Otherwise as `replace_whole`.

    It lies beside the target and is readable for whom that is, so that a private file has no public draft.
    """
    if target.exists() and not target.is_file():
        with tempfile.TemporaryDirectory() as folder:
            draft = Path(folder) / "draft"
            draft.touch(mode=0o600)
            yield draft
            with draft.open("rb") as written, target.open("wb") as out:
                shutil.copyfileobj(written, out)
        return
    place = target.resolve()
    draft = place.with_name(f".{place.name[:_NAME]}.{secrets.token_hex(4)}.part")
    mode = place.stat().st_mode & 0o7777 if place.exists() else None
    os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666 if mode is None else 0o600))
    try:
        yield draft
        if mode is not None:
            draft.chmod(mode)
        draft.replace(place)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
