"""Read-only bearer tokens of people, from the operator's file. Knows no route.

The file maps the SHA-256 of a token to whom it was given: a name, who then reads as an auditor, or `{"name": …, "role": "owner"}`, who also
reads what is released to owners (losses). Neither reads the finished model: that takes the owner's own signature.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, TypeAdapter

from shared.errors import ConfigurationError
from shared.names import Role
from shared.service.signatures import Caller
from shared.service.state import BearerResolver


class _Reader(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str
    role: Literal["auditor", "owner"] = "auditor"


def reader_tokens(path: Path | None) -> BearerResolver | None:
    """Whom a token was given to; None where no file is named. Raises: ConfigurationError."""
    if path is None:
        return None
    try:
        found = TypeAdapter(dict[str, str | _Reader]).validate_json(path.read_bytes())
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not a JSON object of names or readers"
        remedy = (
            'Write {SHA-256 of a token in hex: name, or {"name": …, "role": "owner"}} there, or unset reader_tokens.'
        )
        raise ConfigurationError(f"The reader tokens {path} cannot be used: {why}", remedy=remedy) from None
    readers = {digest: _Reader(name=said) if isinstance(said, str) else said for digest, said in found.items()}

    async def resolve(token: str) -> Caller | None:
        reader = readers.get(hashlib.sha256(token.encode()).hexdigest())
        if reader is None:
            return None
        # No fingerprint: nobody signed. What wants a signature looks for it.
        return Caller("", reader.name, frozenset({Role.AUDITOR, Role(reader.role)}))

    return resolve
