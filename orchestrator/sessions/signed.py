"""A session's manifest as its owner signed it, and as holders are asked about it. Knows no journal.

The projection row is enough: whoever reads it verifies the signature.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from typing import Any

from shared.wire.visit import Signed


def signed_manifest(row: Mapping[Any, Any]) -> Signed:
    """The manifest exactly as its owner signed it."""
    return Signed(document=b64encode(row["manifest"]).decode(), signature=b64encode(row["signature"]).decode())


def approval_wanted(row: Mapping[Any, Any]) -> dict[str, Any]:
    """The inbox item that asks a holder for its approval: the manifest, and whose it is."""
    signed = signed_manifest(row)
    return {
        "kind": "approval_wanted", "session": row["id"], "manifest": signed.document, "owner_key": row["owner_key"],
        "owner_signature": signed.signature,
    }  # fmt: skip
