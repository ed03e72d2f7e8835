"""The pages' colours without a browser: every text colour on every ground that it stands on, light and dark, by WCAG's contrast."""

from __future__ import annotations

import re

import pytest

from shared.service.ui import COMMON
from tests.ui.looks import LEAST_CONTRAST

CSS = (COMMON / "base.css").read_text()
GROUNDS = ("ground", "panel")
PAIRS = [
    *((text, ground) for text in ("text", "quiet", "link", "bad") for ground in GROUNDS),
    ("quiet", "quiet-ground"), ("text", "quiet-ground"),
    *((kind, f"{kind}-ground") for kind in ("good", "warn", "bad", "info")), ("on-accent", "accent"), ("on-band", "band"),
    *(("text", f"{kind}-ground") for kind in ("good", "warn", "bad")),
]  # fmt: skip


def palettes() -> dict[str, dict[str, str]]:
    """The variables of each block that sets them all."""
    blocks = re.findall(r"(:root[^{]*)\{([^}]*--ground:[^}]*)\}", CSS)
    return {head.strip(): dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", body)) for head, body in blocks}


def luminance(colour: str) -> float:
    """WCAG 2.2's relative luminance."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in parts]
    return sum(value * weight for value, weight in zip(linear, (0.2126, 0.7152, 0.0722), strict=True))


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def test_the_formula() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("name", palettes())
def test_every_text_can_be_read_on_its_ground(name: str) -> None:
    palette = palettes()[name]
    faint = {pair: round(contrast(palette[pair[0]], palette[pair[1]]), 2) for pair in PAIRS}
    assert {pair: ratio for pair, ratio in faint.items() if ratio < LEAST_CONTRAST} == {}
    assert all(
        contrast(palette["focus"], palette[ground]) >= 3 for ground in GROUNDS
    )  # WCAG 2.2, 1.4.11: what is no text


def test_dark_is_the_same_whether_chosen_or_the_systems() -> None:
    light, *dark = palettes().values()
    assert len(dark) == 2
    assert dark[0] == dark[1]
    assert dark[0].keys() == light.keys()
