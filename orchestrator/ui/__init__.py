"""The dashboard's files. Knows no route of the API: the page reads it as anybody may."""

from __future__ import annotations

from pathlib import Path

from shared.service.ui import Frame, pages

router = pages(
    Path(__file__).parent / "static", Frame(title="GPU Travelling", style="charts.css", instead="the gput command")
)
