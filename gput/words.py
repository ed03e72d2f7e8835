"""Lists of words as they are written on a command line. Knows no command."""

from __future__ import annotations

from collections.abc import Iterable

import typer


def field_lists(entries: Iterable[str], option: str) -> dict[str, list[str]]:
    """`FIELD=WORD,WORD,…` of each entry, by field. Raises: typer.BadParameter: an entry is not of that form."""
    parts = [entry.partition("=") for entry in entries]
    if not all(field and sign and words for field, sign, words in parts):
        raise typer.BadParameter("write FIELD=NAME,NAME,…", param_hint=option)
    return {field: words.split(",") for field, _, words in parts}
