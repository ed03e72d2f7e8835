"""Datasets that the settings do not name any more: known by their rows, and forgotten after a day. Knows no key and no file.

A start with a misspelt or a missing setting withdraws a dataset as well, or the place where it lay. So what its operator declared of it,
which nobody else has, and what was converted of it, which takes hours, outlive that for a while.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from math import isfinite
from pathlib import Path
from typing import Any, Final, Literal

from sqlalchemy import Connection

from data_holder.dataset_mac import OF_SETTINGS
from data_holder.dataset_options import declared_of, kept_options
from data_holder.tables import rows
from data_holder.tables.schema import DATASETS
from shared.canonical import sha256
from shared.service.clock import Clock
from shared.service.logging import get_logger
from shared.service.retention import DAY_S
from shared.service.statements import update_row

FORGOTTEN_S: Final = DAY_S
_WITHDRAWN: Final = "withdrawn"
_FORMER: Final = ".before-"
"""Between a dataset's name and what stands for its former path, in the name of the row for that."""
_REMEDY: Final = "If that is a mistake, name it in the settings again within a day and start this holder again; nothing is lost until then"
_log = get_logger("data_holder.catalogue")
Put = Callable[[str, Path, dict[str, Any], str], None]
"""Writes a row: name, path, options, source."""


class Withdrawals:
    """By the names that the settings give. A row's source is `settings` until the first start that does not name it, then `withdrawn`, and
    it was added when that was."""

    def __init__(self, configured: Collection[str], clock: Clock) -> None:
        self._configured, self._clock = configured, clock

    def source_of(self, row: Mapping[str, Any]) -> Literal["settings", "api", "withdrawn"]:
        """Where a dataset comes from now, whatever its row remembers."""
        if row["name"] in self._configured:
            return "settings"
        return "withdrawn" if row["source"] in OF_SETTINGS else "api"

    def is_withdrawn(self, row: Mapping[str, Any]) -> bool:
        """Whether the settings named it once."""
        return self.source_of(row) == _WITHDRAWN

    def begin(self, connection: Connection) -> list[str]:
        """At a start: those that the last one still named count from now on, and those named again no more; which the first are."""
        for row in rows.all_datasets(connection):
            if row["name"] in self._configured and row["source"] == _WITHDRAWN:
                update_row(connection, DATASETS, {"name": row["name"]}, {"source": "settings"})
        new = [row["name"] for row in rows.all_datasets(connection) if self.is_withdrawn(row) and not _counts(row)]
        for name in new:
            update_row(connection, DATASETS, {"name": name}, {"source": _WITHDRAWN, "added_at": self._clock()})
        return new

    def move(self, connection: Connection, before: rows.Row, path: Path, put: Put) -> list[str]:
        """Have the former place of a dataset of the settings, by its believed row of before, as a withdrawn one beside it: a misspelt path
        would else lose at once what was converted by the right one. Which it is, if any. `put` writes a row."""
        name, former = before["name"], Path(before["path"])
        rows.drop_datasets(connection, _former(name, path), unless=lambda row: not self.is_withdrawn(row))
        if former == path:
            return []
        put(_former(name, former), former, {}, _WITHDRAWN)
        return [_former(name, former)]

    def warn_of_moves(self, moved: Collection[str]) -> None:
        """Say what `move` made."""
        for name in moved:
            _log.warning(
                "a dataset's path is another one in the settings", kept_for_a_day=name, remedy="If that is a mistake, correct it "
                "within a day and start this holder again; what was converted of the former files is kept until then",
            )  # fmt: skip

    def warn(self, new: Collection[str]) -> None:
        """Say what `begin` found."""
        for name in new:
            _log.warning("a dataset is not in the settings any more", dataset=name, remedy=_REMEDY)

    def forget(self, connection: Connection, spoilt: Collection[str]) -> list[rows.Row]:
        """Remove those withdrawn for long that no approved session needs, but for `spoilt` ones; what was kept of them."""
        last = self._clock() - FORGOTTEN_S
        known = [row for row in rows.all_datasets(connection) if _counts(row) and row["added_at"] <= last]
        found = [row for row in known if self.is_withdrawn(row)]
        gone = rows.drop_unused(connection, [row["name"] for row in found], spoilt)
        return [row for row in found if row["name"] in gone]

    def tell(self, gone: Collection[rows.Row]) -> None:
        """Say what `forget` removed, with what is to be said again of it if it comes back."""
        for row in gone:
            declared = declared_of(kept_options(row["options"]) or {})
            _log.warning(
                "forgot a dataset that the settings do not name any more", dataset=row["name"], declared=declared
            )


def _counts(row: Mapping[str, Any]) -> bool:
    """Whether a row says since when it is withdrawn; a damaged time is none, and counts anew from the next start on."""
    return row["source"] == _WITHDRAWN and isinstance(row["added_at"], float) and isfinite(row["added_at"])


def _former(name: str, path: Path) -> str:
    """What a dataset's former place is called, within the bounds of a name."""
    return f"{name[:46]}{_FORMER}{sha256(str(path).encode('utf-8', 'surrogateescape')).hex()[:8]}"
