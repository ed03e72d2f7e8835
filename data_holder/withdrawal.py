"""Datasets that the settings do not name any more: known by their rows, and forgotten after a day. Knows no key and no file.

A start with a misspelt or a missing setting withdraws a dataset as well. So what its operator declared of it, which nobody else has, and
what was converted of it, which takes hours, outlive that for a while.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import isfinite
from typing import Any, Final, Literal

from sqlalchemy import Connection

from data_holder.dataset_options import declared_of, kept_options
from data_holder.tables import rows
from data_holder.tables.schema import DATASETS
from shared.service.clock import Clock
from shared.service.logging import get_logger
from shared.service.retention import DAY_S
from shared.service.statements import update_row

FORGOTTEN_S: Final = DAY_S
_WITHDRAWN: Final = "withdrawn"
_REMEDY: Final = "If that is a mistake, name it in the settings again within a day and start this holder again; nothing is lost until then"
_log = get_logger("data_holder.catalogue")


class Withdrawals:
    """By the names that the settings give. A row's source is `settings` until the first start that does not name it, then `withdrawn`, and
    it was added when that was."""

    def __init__(self, configured: Collection[str], clock: Clock) -> None:
        self._configured, self._clock = configured, clock

    def source_of(self, row: Mapping[str, Any]) -> Literal["settings", "api", "withdrawn"]:
        """Where a dataset comes from now, whatever its row remembers."""
        if row["name"] in self._configured:
            return "settings"
        return "withdrawn" if row["source"] in ("settings", _WITHDRAWN) else "api"

    def is_withdrawn(self, row: Mapping[str, Any]) -> bool:
        """Whether the settings named it once."""
        return self.source_of(row) == _WITHDRAWN

    def begin(self, connection: Connection) -> list[str]:
        """At a start: those that the last one still named count from now on; which they are."""
        new = [row["name"] for row in rows.all_datasets(connection) if self.is_withdrawn(row) and not _counts(row)]
        for name in new:
            update_row(connection, DATASETS, {"name": name}, {"source": _WITHDRAWN, "added_at": self._clock()})
        return new

    def warn(self, new: Collection[str]) -> None:
        """Say what `begin` found."""
        for name in new:
            _log.warning("a dataset is not in the settings any more", dataset=name, remedy=_REMEDY)

    def forget(self, connection: Connection) -> list[rows.Row]:
        """Remove those withdrawn for long that no approved session needs; what was kept of them."""
        last = self._clock() - FORGOTTEN_S
        known = [row for row in rows.all_datasets(connection) if _counts(row) and row["added_at"] <= last]
        found = [row for row in known if self.is_withdrawn(row)]
        gone = rows.drop_unused(connection, [row["name"] for row in found])
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
