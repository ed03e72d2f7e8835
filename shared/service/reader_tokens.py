"""The file of people's read-only bearer tokens: who has one, as whom. Knows no route; a token itself is never in it.

It maps the SHA-256 of a token to whom it was given: a name, who then reads as an auditor, or `{"name": …, "role": "owner"}`, who also
reads what is released to owners (losses).
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from shared.crypto.private_file import keep_owner
from shared.errors import ConfigurationError


class Reader(BaseModel):
    """Whom a token was given to."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    name: str
    role: Literal["auditor", "owner"] = "auditor"


# One that is no digest would let nobody in, and nobody would hear of it: a token itself, for instance, put there by mistake.
_FILE = TypeAdapter(dict[Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")], str | Reader])


def token_digest(token: str) -> str:
    """By what a token is known: its SHA-256, hex."""
    return hashlib.sha256(token.encode()).hexdigest()


def read_readers(path: Path) -> dict[str, Reader]:
    """Readers by their token's digest. Raises: ConfigurationError: the file cannot be used."""
    try:
        found = _FILE.validate_json(path.read_bytes())
    except (OSError, ValueError) as error:
        why = (
            error.strerror
            if isinstance(error, OSError)
            else "it is not a JSON object of SHA-256 digests and names or readers"
        )
        remedy = (
            'Write {SHA-256 of a token in hex: name, or {"name": …, "role": "owner"}} there, or unset reader_tokens.'
        )
        raise ConfigurationError(f"The reader tokens {path} cannot be used: {why}", remedy=remedy) from None
    return {digest: Reader(name=said) if isinstance(said, str) else said for digest, said in found.items()}


@contextmanager
def changing(path: Path) -> Iterator[dict[str, Reader]]:
    """The readers that there are, held against every other change until the block ends: it writes those that shall be (`write_readers`).

    Without it, what two change at once is what the later one has read: a token that was revoked would count again.

    Raises:
        ConfigurationError: the file cannot be used, or nothing can be written beside it.
    """
    try:
        # Beside it, for the file itself is replaced. Only to be locked: whoever may write there may open what another user made.
        lock = os.open(path.with_name(f".{path.name}.lock"), os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise _unwritable(path, error) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield read_readers(path) if path.exists() else {}
    finally:
        os.close(lock)


def write_readers(path: Path, readers: Mapping[str, Reader]) -> None:
    """Put the whole file in the place of the one that is there, whose owner and rights it keeps. Raises: ConfigurationError."""
    said = {
        digest: reader.name if reader.role == "auditor" else reader.model_dump() for digest, reader in readers.items()
    }
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        draft.write_text(json.dumps(said, indent=2) + "\n")
        if path.exists():
            draft.chmod(path.stat().st_mode & 0o777)
            keep_owner(draft, path)
        os.replace(draft, path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise _unwritable(path, error) from None


def _unwritable(path: Path, error: OSError) -> ConfigurationError:
    return ConfigurationError(
        f"The reader tokens {path} cannot be written: {error.strerror}", remedy="Run this as who owns the file."
    )
