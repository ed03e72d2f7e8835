"""A hostile holder in an honest one's place, in a whole session: behaviours by name, and what must come of each in each mode. Seeded.

The deeds themselves stand in `holder_deeds`; here is what is expected of them, and how a holder is turned.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import httpx2
import numpy as np
import pytest

from data_holder.catalogue import Catalogue
from data_holder.datasets import InspectionReport
from gput.local.attacks.hostile_holder import turn
from shared.claims.training import SGD, TrainingOptions
from shared.errors import GputError
from shared.names import RegionKind, TravelMode
from tests.adversary.holder_deeds import Turned
from tests.adversary.platform import HostilePlatform
from tests.adversary.platform_edges import LateWrites
from tests.adversary.platform_power import open_to_all
from tests.world.world_material import BATCH, RECORDS, rows
from tests.world.world_wire import Call, Deliver

NAME, VICTIM = "city", "harbour"
SCOPED, DIRECT, PAPER = TravelMode.SCOPED, TravelMode.DIRECT, TravelMode.PAPER


@dataclass(frozen=True)
class Expected:
    """`told`: every code that its acts are answered with, "accepted" where one was obeyed; `outcomes`: of its visit's attempts; `reason`:
    what is said of the first of them; `result`: for the adversary table."""

    result: str
    told: frozenset[str]
    outcomes: tuple[str, ...]
    reason: str = ""


def _expected(result: str, told: str, outcomes: str, reason: str = "") -> Expected:
    return Expected(result, frozenset(told.split()), tuple(outcomes.split()), reason)


@dataclass(frozen=True)
class Behaviour:
    """`visit`: in which of its visits it is done; `manifest`: what the session needs for it; `same`: whether the model at the end is that
    of an undisturbed session."""

    rows: str
    expected: Mapping[TravelMode, Expected]
    visit: int = 1
    manifest: Mapping[str, Any] = field(default_factory=dict)
    same: bool = True


def _alike(expected: Expected) -> Mapping[TravelMode, Expected]:
    return dict.fromkeys(TravelMode, expected)


def _only_paper(paper: Expected) -> Mapping[TravelMode, Expected]:
    """What takes a command path: only one mode has one."""
    refused = _expected("stopped: a holder's port has no command path", "accepted wrong-port", "closed")
    return {SCOPED: refused, DIRECT: refused, PAPER: paper}


_KEPT = "stopped: the lease ends, the visit is recalled, the others go on"
_POSED = "stopped: the port is its visit's, the word is its holder's"
_CHECKED = "stopped: range and finite checks in the GPU before a step"
UNDONE = "stopped: read-back, roll-back and sweep"
SPOILT = TrainingOptions(optimizer=SGD(lr=0.05), batch_size=BATCH, seed=7)
_REFUSED, _SEALED = "copy-refused", "stopped: a key and counters of its own for each epoch"
_COUNTED = "stopped: count, length and commitment must be those of memory"
_PROVEN = "stopped: records are proven within the approved root"


def _copied(result: str, reason: str, told: str = _REFUSED) -> Mapping[TravelMode, Expected]:
    """What the copy engine refuses: at once where it takes records, at the fetch where they were staged."""
    ended = _expected(result, told, "recalled closed", reason)
    return {SCOPED: ended, PAPER: ended, DIRECT: replace(ended, told=frozenset({"accepted"}))}


BEHAVIOURS: Mapping[str, Behaviour] = MappingProxyType(
    {
        "scan": Behaviour(
            "H03 H22",
            _only_paper(_expected("open: the key reads all of GPU memory; random addresses only cost a search", "accepted read", "closed")),
        ),
        "overwrite": Behaviour("H04", _only_paper(_expected(UNDONE, "accepted", "quarantined closed", "model"))),
        "plant_code": Behaviour("H05 H06", _only_paper(_expected(UNDONE, "accepted", "quarantined closed", "model"))),
        "redirect_launch": Behaviour("H06", _only_paper(_expected(UNDONE, "accepted", "quarantined closed", "control"))),
        "write_late": Behaviour("H08 C03", _alike(_expected("stopped: the fence kills the key first", "accepted", "closed"))),
        "replay": Behaviour(
            "H09 H11 C03",
            {
                **dict.fromkeys((SCOPED, PAPER), _expected(_SEALED, "no-grant copy-refused", "recalled closed", "does not authenticate")),
                DIRECT: _expected(_SEALED, "no-grant accepted", "closed"),
            },
            visit=2,
        ),
        "forge_iv_state": Behaviour("H11", _copied(_SEALED, "does not authenticate")),
        "under_fill": Behaviour("H13", _copied(_COUNTED, "record 0 has")),
        "equivocate": Behaviour("H14", _copied(_PROVEN, "the records are not those that the cursor names", "data-not-approved")),
        "poison": Behaviour(
            "H15", _alike(_expected("stopped: the held-out check, roll-back, quarantine", "accepted", "rejected", "held-out loss rose")),
            manifest={"training": SPOILT, "quorum": 1}, same=False,
        ),
        "hoard": Behaviour(
            "H12", _alike(_expected(_KEPT, "kept", "recalled closed", "lease")),
            manifest={"lease_s": 1},
        ),
        "impersonate": Behaviour(
            "H18", _alike(_expected(_POSED, "accepted no-grant not-your-visit", "closed")),
        ),
        "send_nan": Behaviour(
            "H21", _alike(_expected(_CHECKED, "accepted", "rejected", "finite")), same=False,
        ),
    }
)  # fmt: skip


@dataclass
class HostileHolder:
    """One holder of a world, turned. `said`: (act, answer) of all that it did; `read`: all that it got to read. `visit` and `kinds` (of
    regions that it overwrites) are the behaviour's own where they are not given."""

    platform: HostilePlatform
    behaviour: str
    patch: pytest.MonkeyPatch
    visit: int | None = None
    kinds: tuple[RegionKind, ...] = (RegionKind.MODEL,)
    said: list[tuple[str, str]] = field(default_factory=list)
    read: list[bytes] = field(default_factory=list, repr=False)
    _spoke: bool = False

    def turn(self) -> LateWrites:
        """From here on it behaves so. Its platform helps: the MUX turns nobody away, and what it leaves there is delivered late."""
        platform, late = self.platform, LateWrites(self.platform)
        visit = BEHAVIOURS[self.behaviour].visit if self.visit is None else self.visit
        facts = {
            "name": NAME, "device": platform.gpu.device, "late": late, "draw": random.Random(platform.seed), "said": self.said,
            "read": self.read, "kinds": self.kinds, "visit": visit, "deed": self.behaviour, "keys": [], "visits": [],
            "archive": platform.world.material.archive,
        }  # fmt: skip
        turn(type("Hostile", (Turned,), facts), self.patch.setattr)
        open_to_all(platform)
        prepare = getattr(self, "_" + self.behaviour, None)
        if prepare is not None:
            prepare()
        if self.behaviour == "write_late":
            late.arm()
        return late

    def _data(self, features: np.ndarray[Any, Any], label: np.ndarray[Any, Any]) -> None:
        np.savez(self.platform.world.folder / f"holder-{NAME}" / "ehr.npz", features=features, label=label)

    def _poison(self) -> None:
        """Its approved data: features a hundred times as large as they should be, and labels that do not belong to them."""
        features, label = rows(RECORDS, 0)
        self._data((features * 100).astype("<f4"), np.roll(label, self.platform.draw.randrange(1, RECORDS)))

    def _send_nan(self) -> None:
        """One of the first visit's records is no number, and its own inspection does not see it."""
        features, label = rows(RECORDS, 0)
        features[self.platform.draw.randrange(3 * BATCH), 0] = np.nan
        self._data(features, label)
        inspect = Catalogue.inspect

        async def blind(catalogue: Catalogue, name: str, program: Any) -> InspectionReport:
            return replace(await inspect(catalogue, name, program), fits=True)

        self.patch.setattr(Catalogue, "inspect", blind)

    def _impersonate(self) -> None:
        """Just as the victim's word comes, it gives its own, in the victim's visit and under its own key."""
        world = self.platform.world

        async def hook(call: Call, deliver: Deliver) -> httpx2.Response:
            if call.client == f"holder-{VICTIM}" and call.path.endswith("/report") and not self._spoke:
                self._spoke = True
                app = world[f"holder-{NAME}"].app
                assert app is not None
                try:
                    await app.state.holder.visits._link.send("POST", call.path, call.body)
                except GputError as error:
                    self.said.append(("another's report", error.code))
                else:
                    self.said.append(("another's report", "accepted"))
            return await deliver(call)

        self.platform.hook(hook)


def canaries_read(holder: HostileHolder, of: Mapping[str, bytes]) -> list[str]:
    """Whose records it got to read."""
    memory = b"".join(holder.read)
    return [name for name, canary in of.items() if canary[:16] in memory]
