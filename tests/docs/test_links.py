"""Every link between the pages leads to a file and a heading that are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.extract import ROOT, pages

LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")
FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """As the usual renderers make them of headings."""
    headings = re.findall(r"^#+ (.*)$", FENCED.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def broken(page: Path) -> list[str]:
    """What leads nowhere."""
    found = []
    for link in LINK.finditer(FENCED.sub("", page.read_text())):
        target = (page.parent / link[1]).resolve() if link[1] else page
        if not target.exists() or (link[2] and target.suffix == ".md" and link[2] not in anchors(target)):
            found.append(link[0])
    return found


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    assert not broken(page)


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# One thing\n[a](#one-thing) [b](#another) [c](absent.md) [d](https://example.org) [e](page.md#one-thing)\n"
    )
    assert broken(page) == ["](#another)", "](absent.md)"]
