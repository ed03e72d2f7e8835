"""What each problem code means, why it is so and what to do: one table for pages and documentation. Knows no HTTP.

The texts are the TOML files beside this one, a family of codes each: `title`, `why` (for all of the family), and for each of `codes`
what it means and what to do.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

TEXTS = Path(__file__).parent


@dataclass(frozen=True)
class Explanation:
    """One code explained. `family` and `why` hold for all codes that are alike."""

    code: str
    family: str
    means: str
    why: str
    do: str


@lru_cache(1)
def explanations() -> Mapping[str, Explanation]:
    """Every code, family by family, in the order in which the files list them.

    Raises:
        ValueError: a code is explained twice, or not in two texts.
    """
    found: dict[str, Explanation] = {}
    for path in sorted(TEXTS.glob("*.toml")):
        family = tomllib.loads(path.read_text(encoding="utf-8"))
        for code, texts in family["codes"].items():
            means, do = texts
            if code in found:
                raise ValueError(f"{path.name}: {code} is explained twice")
            found[code] = Explanation(code, family["title"], means, family["why"], do)
    return found


def explain(code: str) -> Explanation | None:
    """What is known of a code."""
    return explanations().get(code)
