"""The table of what going back loses has a row for each revision of each service's database."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEADS = {"orchestrator": "| orchestrator's schema |", "data_holder": "| holder's schema |"}


@pytest.mark.parametrize("service", HEADS)
def test_each_revision_has_a_row(service: str) -> None:
    revisions = sorted(path.name[:4] for path in (ROOT / service / "migrations" / "versions").glob("[0-9]*.py"))
    page = (ROOT / "docs" / "operations.md").read_text()
    table = page.partition(HEADS[service])[2].partition("\n\n")[0]
    assert sorted(re.findall(r"^\| ([0-9]{4}) \|", table, re.MULTILINE)) == revisions
