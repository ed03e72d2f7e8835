"""Writing a file whole or not at all, a secret for nobody else's eyes, what is public for everybody's. Knows no kind of either."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def write_private(path: Path, content: bytes) -> None:
    """`content` in a new file of mode 0600, durable when this returns; a crash leaves no half of it under `path`.

    Raises:
        FileExistsError: there is one, and a secret is never replaced unasked. OSError.
    """
    draft = _draft(path, content)
    try:
        os.link(draft, path)  # fails where the file exists
        sync_folder(path.parent)
    finally:
        draft.unlink()


def replace_private(path: Path, content: bytes) -> None:
    """As `write_private`, in the place of the file that is there, whose owner it keeps, for what is rotated: root may do it for a service
    that is not root. Raises: OSError."""
    draft = _draft(path, content)
    try:
        keep_owner(draft, path)
        os.replace(draft, path)
    except BaseException:
        draft.unlink()
        raise
    sync_folder(path.parent)  # what was replaced is not to come back after a power cut


def replace_public(path: Path, content: bytes) -> None:
    """`content` as the whole of a file that others may read, durable when this returns: readers and a crash find the old or the new one.
    Raises: OSError."""
    draft = _draft(path, content, mode=0o666, folder_mode=0o777)
    try:
        os.replace(draft, path)
    except BaseException:
        draft.unlink()
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in it durable: a file's own fsync keeps what it holds, not that it is there. Raises: OSError."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def keep_owner(draft: Path, path: Path) -> None:
    """Make the draft its whose file `path` is, if there is one and it is somebody else's. Raises: OSError: only root gives files away."""
    if path.exists() and (owner := _owner(path)) != _owner(draft):
        os.chown(draft, *owner)


def _owner(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_uid, status.st_gid


def _draft(path: Path, content: bytes, *, mode: int = 0o600, folder_mode: int = 0o700) -> Path:
    """The content beside `path`, durable; the process's umask narrows the modes."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=folder_mode)
    # Not by process id: in a container every life has the same.
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        draft.unlink()
        raise
    return draft
