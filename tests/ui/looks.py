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

# Lines of text that stand on one another. Drawings are left out: their labels are thinned by code that is tested itself.
_COLLIDED = """() => {
  const lines = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode;
    const element = node.parentElement;
    if (!node.textContent.trim() || !element.checkVisibility() || element.closest("svg, noscript, option, .skip")) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    let edge = { left: -Infinity, right: Infinity };  // of whatever scrolls it sideways
    for (let at = node.parentElement; at; at = at.parentElement) {
      if (getComputedStyle(at).overflowX === "visible") continue;
      const its = at.getBoundingClientRect();
      edge = { left: Math.max(edge.left, its.left), right: Math.min(edge.right, its.right) };
    }
    for (const { left, right, top, bottom } of range.getClientRects()) {
      const box = { left: Math.max(left, edge.left), right: Math.min(right, edge.right), top, bottom };
      // What is cut to an ellipsis has two boxes: as it is shown, and whole.
      const cut = getComputedStyle(element).textOverflow === "ellipsis" ? node : null;
      if (box.right - box.left > 1) lines.push({ box, cut, text: node.textContent.trim().slice(0, 40) });
    }
  }
  const deep = (a, b) =>
    Math.min(a.right, b.right) - Math.max(a.left, b.left) > 3 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 5;
  const others = (one, at) => lines.slice(at + 1).filter((two) => !(one.cut && one.cut === two.cut));
  return lines.flatMap((one, at) =>
    others(one, at).filter((two) => deep(one.box, two.box)).map((two) => `${one.text} / ${two.text}`));
}"""
_CUT = """() => [...document.querySelectorAll(".scroller")]
  .filter(one => one.checkVisibility() && one.querySelector("caption span").getBoundingClientRect().width > one.clientWidth + 1)
  .map(one => one.getAttribute("aria-label"))"""

# Its word is in its middle: where its place is scrolled, it would stand out of sight.
_BROAD = """() => [...document.querySelectorAll("button")].filter(one => one.checkVisibility()
  && one.getBoundingClientRect().width > (one.closest(".scroller")?.clientWidth ?? innerWidth)).map(one => one.outerHTML.slice(0, 80))"""


def broad(page: Any) -> list[str]:
    """Buttons that are wider than the place in which they are looked at."""
    found: list[str] = page.evaluate(_BROAD)
    return found


def collided(page: Any) -> list[str]:
    """Pairs of texts that stand on one another."""
    found: list[str] = page.evaluate(_COLLIDED)
    return found


def cut(page: Any) -> list[str]:
    """Captions of tables that have to be scrolled to be read."""
    found: list[str] = page.evaluate(_CUT)
    return found


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
