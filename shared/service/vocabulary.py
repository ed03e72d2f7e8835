"""Which kinds of facts a journal may hold, and how facts that an earlier version of the code wrote are read. Knows no fact's meaning.

A fact's kind is stored as `KIND`, or as `KIND/N` where N ≥ 2 is the version of its body; the chain's MAC covers it. A kind's version
goes up where an older reader would be wrong to go on: it then refuses the journal by name instead of misreading it. A field that an
older reader may leave unread needs no new version: it is listed in `added`, with what its absence means.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from shared.errors import ConfigurationError

Body = dict[str, Any]
Step = Callable[[Body], Body]
"""A body of one version as the next version would have said it."""


@dataclass(frozen=True)
class Vocabulary:
    """A journal's kinds.

    Attributes:
        versions: every kind that this code reads, with the version that it writes.
        steps: (kind, version) -> how its body becomes one of the next version; one for each version before the newest.
        added: kind -> fields that bodies of its newest version may lack, because they came later, with the value that stands for that.

    Raises:
        ValueError: a step is missing, or one is of no kind or version.
    """

    versions: Mapping[str, int]
    steps: Mapping[tuple[str, int], Step] = field(default_factory=dict)
    added: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        needed = {(kind, version) for kind, newest in self.versions.items() for version in range(1, newest)}
        odd = needed ^ set(self.steps) or set(self.added) - set(self.versions)
        if odd:
            raise ValueError(f"the vocabulary does not fit together: {sorted(map(str, odd))}")

    def stored(self, kind: str) -> str:
        """The kind as it is written down. Raises: KeyError: this code has no such kind."""
        version = self.versions[kind]
        return kind if version == 1 else f"{kind}/{version}"

    def read(self, stored: str, body: Any) -> tuple[str, Any]:
        """Kind and body as this version of the code says it.

        Raises:
            ConfigurationError: code `newer-journal`; a newer version of the program wrote it.
        """
        kind, _, number = stored.partition("/")
        newest, version = self.versions.get(kind, 0), int(number) if number.isdecimal() else 1
        if version > newest:
            raise ConfigurationError(
                f"the journal holds a fact `{stored}`, which this version of the program does not know",
                code="newer-journal",
                remedy="Run the newer version that wrote it; nothing was changed.",
            )
        for passed in range(version, newest):
            body = self.steps[kind, passed](body)
        missing = self.added.get(kind)
        return kind, body if missing is None else {**missing, **body}
