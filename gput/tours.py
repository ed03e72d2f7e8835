"""The two kinds of tour as commands name them, and what a manifest says of each. Knows no command and no service."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from shared.claims.manifest import Manifest


class Tours(StrEnum):
    """How the visits of a round belong together, where they do."""

    COLLECT = "collect"
    ACCUMULATE = "accumulate"

    @property
    def fields(self) -> dict[str, Literal["tour"]]:
        """The manifest's."""
        return {self.value: "tour"}

    @classmethod
    def of(cls, manifest: Manifest) -> Tours | None:
        """What the manifest asks for; None: each visit trains when it comes."""
        if manifest.collect == "tour":
            return cls.COLLECT
        return cls.ACCUMULATE if manifest.accumulate is not None else None
