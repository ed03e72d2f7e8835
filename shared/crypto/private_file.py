"""Writing a file that holds a secret: new, whole or not at all, for nobody else's eyes. Knows no kind of secret."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def write_private(path: Path, content: bytes) -> None:
    """`content` in a new file of mode 0600, durable when this returns; a crash leaves no half of it under `path`.

    Raises:
        FileExistsError: there is one, and a secret is never replaced. OSError.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    # Not by process id: in a container every life has the same.
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.link(draft, path)  # fails where the file exists
    finally:
        draft.unlink()
