"""How a page is used without a mouse and without sight: what Tab reaches and shows, what the accessibility tree calls it. Knows no page."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

NAMED = {
    "button", "link", "textbox", "combobox", "checkbox", "slider", "spinbutton", "searchbox", "radio", "menuitem", "tab", "region", "table",
    "progressbar", "img", "image", "navigation", "columnheader", "rowheader",
}  # fmt: skip
"""Roles that mean nothing without a name."""
MOST_TABS = 400

# By its place among all: a control that is drawn anew meanwhile stands for the same.
_WANTED = """const wanted = [...document.querySelectorAll("a[href], button, select, input, textarea, summary, [tabindex='0']")]
    .filter(one => one.checkVisibility() && !one.disabled && one.tabIndex >= 0);"""
_CONTROLS = """() => {
  WANTED
  document.activeElement?.blur();
  document.body.focus();
  return Object.fromEntries(wanted.map((one, at) => [at, one.outerHTML.slice(0, 90)]));
}""".replace("WANTED", _WANTED)
# A ring of two pixels and more; what is drawn (SVG) shows its focus by the stroke of a frame instead.
_FOCUSED = """() => {
  WANTED
  const one = document.activeElement;
  if (!wanted.includes(one)) return null;
  const style = getComputedStyle(one);
  const frame = one.querySelector(":scope > .frame");
  const ring = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
  const { stroke, strokeWidth } = frame ? getComputedStyle(frame) : { stroke: "none", strokeWidth: "0" };
  const drawn = !["none", "rgba(0, 0, 0, 0)"].includes(stroke) && parseFloat(strokeWidth) >= 2;
  const place = one.getBoundingClientRect();
  const seen = place.bottom > 0 && place.top < innerHeight && place.right > 0 && place.left < innerWidth;
  return { key: String(wanted.indexOf(one)), shown: ring || drawn, seen };
}""".replace("WANTED", _WANTED)
_HEADINGS = """() => [...document.querySelectorAll("h1, h2, h3, h4, h5, h6")]
  .filter(one => one.checkVisibility()).map(one => Number(one.tagName[1]))"""


def beyond_keyboard(page: Any) -> list[str]:
    """Controls that Tab does not reach, or whose focus nobody would see."""
    controls: dict[str, str] = page.evaluate(_CONTROLS)
    found = dict.fromkeys(controls, "not reached")
    for _ in range(MOST_TABS):  # the browser has stops of its own: whatever scrolls
        if "not reached" not in found.values():
            break
        page.keyboard.press("Tab")
        if focused := page.evaluate(_FOCUSED):
            found[focused["key"]] = "" if focused["shown"] and focused["seen"] else "focus not visible"
    return [f"{what}: {controls.get(key, key)}" for key, what in found.items() if what]


def nameless(page: Any) -> list[str]:
    """Controls, regions and pictures to which the browser's accessibility tree gives no name."""
    session = page.context.new_cdp_session(page)
    nodes = session.send("Accessibility.getFullAXTree")["nodes"]
    session.detach()
    found = []
    for node in nodes:
        role = node.get("role", {}).get("value", "")
        if not node.get("ignored") and role in NAMED and not node.get("name", {}).get("value", "").strip():
            found.append(f"{role}: {node.get('properties', [])[:2]}")
    return found


def disorder(page: Any) -> list[str]:
    """What is wrong with the headings: other than one of the first level, or a level left out."""
    levels: list[int] = page.evaluate(_HEADINGS)
    wrong = [] if levels.count(1) == 1 else [f"{levels.count(1)} headings of level 1"]
    return wrong + [f"level {b} after level {a}" for a, b in pairwise(levels) if b > a + 1]
