"""The files of the holder's page. Knows no route of the API: the page reads it as the operator may."""

from __future__ import annotations

from pathlib import Path

from shared.service.ui import Frame, pages

router = pages(
    Path(__file__).parent / "static",
    Frame(title="Data holder · GPU Travelling", style="holder.css", instead="gput party requests"),
)
