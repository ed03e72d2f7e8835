"""A symmetric key in a file of its own: 32 random bytes that nobody else may read. Knows no use of a key."""

from __future__ import annotations

import os
from pathlib import Path

from shared.canonical import sha256
from shared.crypto.derived_key import DERIVED_KEY_BYTES
from shared.crypto.private_file import write_private
from shared.crypto.secret import Secret
from shared.errors import ConfigurationError, Conflict


def read_key_file(path: Path, setting: str, *, code: str, remedy: str) -> Secret:
    """The 32 bytes in `path`, which `setting` names.

    Raises:
        ConfigurationError: `code`: the file cannot be read, is open to other users or has another length.
    """
    try:
        status, content = path.stat(), path.read_bytes()
    except OSError as error:
        why = f"cannot be read: {error.strerror}"
    else:
        shared = open_to_others(status.st_mode, status.st_uid, os.geteuid())
        if not shared and len(content) == DERIVED_KEY_BYTES:
            return Secret(content)
        why = "is open to other users" if shared else f"has {len(content)} bytes, not {DERIVED_KEY_BYTES}"
    raise ConfigurationError(f"{setting} {path} {why}", code=code, remedy=remedy)


def open_to_others(mode: int, owner: int, reader: int) -> bool:
    """Whether a file of this mode, whose owner has this user id, is for more eyes than those of `reader`, a service's user id.

    A group may read what belongs to root, where the service is not root: so Kubernetes (a Secret's volume with fsGroup) and systemd hand a
    secret over. A group that could write, or one beside an ordinary owner, is somebody else.
    """
    handed_over = owner == 0 != reader and not mode & 0o037
    return bool(mode & 0o077) and not handed_over


def make_key_file(path: Path) -> Secret:
    """A new key in `path`, mode 0600, never over an existing file. Raises: Conflict `key-exists`."""
    key = os.urandom(DERIVED_KEY_BYTES)
    try:
        write_private(path, key)
    except FileExistsError:
        raise Conflict(f"key file {path} exists already and is kept", code="key-exists") from None
    return Secret(key)


def key_id(key: Secret) -> str:
    """What a key may be called in public: 16 hex digits that tell it from others and say nothing of its bytes."""
    return sha256(b"gput/key-id\x00" + key.reveal()).hex()[:16]
