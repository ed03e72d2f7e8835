"""What can be measured of a page's looks: contrast, names of controls, width. Knows no page."""

from __future__ import annotations

from typing import Any

LEAST_CONTRAST = 4.5

# WCAG 2.2's relative luminance and contrast ratio; a ground that is transparent is its parent's.
_FAINT = """least => {
  const parse = text => (text.match(/[\\d.]+/g) ?? []).map(Number);
  const light = rgb => rgb.slice(0, 3).map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = element => {
    for (let at = element; at; at = at.parentElement) {
      const colour = parse(getComputedStyle(at).backgroundColor);
      if (colour.length === 3 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || !element.checkVisibility() || element.disabled || element.closest("noscript")) continue;
    const inDrawing = element.closest("svg");
    const style = getComputedStyle(element);
    const [a, b] = [light(parse(inDrawing ? style.fill : style.color)), light(ground(inDrawing ? inDrawing.parentElement : element))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < least) found.push(`${ratio.toFixed(2)}: ${walker.currentNode.textContent.trim().slice(0, 40)}`);
  }
  return [...new Set(found)];
}"""
_UNNAMED = """() => [...document.querySelectorAll("button, select, input, a, [role=button], [role=region]")]
  .filter(one => one.checkVisibility() && !(one.getAttribute("aria-label") ?? one.labels?.[0]?.textContent ?? one.textContent).trim())
  .map(one => one.outerHTML.slice(0, 80))"""


def faint(page: Any) -> list[str]:
    """Texts whose contrast is below 4.5, with it."""
    found: list[str] = page.evaluate(_FAINT, LEAST_CONTRAST)
    return found


def unnamed(page: Any) -> list[str]:
    """Controls that somebody who hears the page would not know by name."""
    found: list[str] = page.evaluate(_UNNAMED)
    return found


def overflow(page: Any) -> int:
    """Pixels by which the page is wider than its window."""
    wide: int = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
    return wide
