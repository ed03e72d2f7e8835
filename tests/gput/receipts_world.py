"""A saved receipts folder to spoil in one place, and how its verification refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gput.receipts import verify
from shared.errors import VerificationFailed
from tests.gput.gput_samples import Bundle


def refused(folder: Path, *parts: str) -> VerificationFailed:
    """Verification must fail and say where."""
    with pytest.raises(VerificationFailed) as found:
        verify(folder)
    assert any(part in found.value.detail for part in parts), found.value.detail
    return found.value


def flipped_hex(text: str) -> str:
    return ("0" if text[0] != "0" else "1") + text[1:]


def receipt_leaves(bundle: Bundle) -> list[dict[str, Any]]:
    return [leaf for leaf in bundle.value["leaves"] if leaf["kind"] == "receipt"]
