"""What all wire models of the GPU's channels share: frozen CBOR maps, bytes stay bytes. Knows no message."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from shared.claims import Claim

Bytes32 = Annotated[bytes, Field(min_length=32, max_length=32)]
Secret32 = Annotated[bytes, Field(min_length=32, max_length=32, repr=False)]
"""As `Bytes32`, for what no log and no error may show."""
WorkKey = Annotated[str, Field(pattern=r"^[a-z0-9_/.-]{1,120}$")]


class Wire(Claim):
    """A CBOR map; bytes stay bytes."""

    model_config = ConfigDict(ser_json_bytes="base64")
