"""The one rule for texts that people write and other people read: nothing in them that cannot be seen. Knows no field.

Control characters (C0, C1), bidirectional and other format characters, line separators and unassigned code points write over a line, turn
it round, or make two names look the same. What was accepted before this rule still loads: it is asked where a text is handed in, and what
shows one replaces them (`shared.service.printable`).
"""

from __future__ import annotations

MOST = 5


def unseen(text: str, but: str = "") -> str:
    """Which characters of the text break the rule (`U+202E, …`), those of `but` allowed; empty if none does."""
    if text.isprintable():
        return ""
    found = dict.fromkeys(letter for letter in text if not letter.isprintable() and letter not in but)
    names = [f"U+{ord(letter):04X}" for letter in found]
    return ", ".join(names[:MOST]) + (f" and {len(names) - MOST} more" if len(names) > MOST else "")
