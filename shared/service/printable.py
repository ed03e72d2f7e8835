"""Text of others for a terminal: what would steer it, or turn the order of letters round, is shown as a question mark. Knows no service."""

from __future__ import annotations


def printable(text: str, but: str = "") -> str:
    """`text` with every character that is not printable replaced, except those of `but`."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() or letter in but else "?" for letter in text)
