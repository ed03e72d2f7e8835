"""A log under good signatures in which the GPU states something else of a visit than it should: the leaf is named, and what differs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gput.local.receipts_bench import STEPS, Maker
from gput.receipts import verify
from shared.claims.receipt import DeviceStatement
from shared.errors import VerificationFailed

FALSE = 2
"""The visit, from 1, whose statement is not as it should be."""


class Faulty(Maker):
    """An installation whose GPU runs faulty code: it signs what it should not say."""

    said: dict[str, Any]

    def _statement(self, index: int, holder: str, visit: str, model: str) -> DeviceStatement:
        right = super()._statement(index, holder, visit, model)
        return right.model_copy(update=self.said) if index == FALSE else right


@pytest.mark.parametrize(
    ("said", "named"),
    [
        ({"scrub_digest": "33" * 32}, "scrub digest differs"),
        ({"scrubbed_bytes": 1 << 40}, "scrubbed bytes differs"),
        ({"steps": STEPS + 1}, "records trained on differs"),
    ],
)
async def test_the_leaf_is_named(said: dict[str, Any], named: str, tmp_path: Path) -> None:
    maker = Faulty(tmp_path / "work", 3)
    maker.said = said
    await maker.make(tmp_path / "receipts")
    with pytest.raises(VerificationFailed, match=f"leaf {FALSE - 1}: {named}"):
        verify(tmp_path / "receipts")
