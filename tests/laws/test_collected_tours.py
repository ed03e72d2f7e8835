"""The laws where visits wait for their tour's training: they hold under faults and attacks, and their monitors see what breaks them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shared.names import RegionKind, TravelMode
from shared.wire import gpu
from tests.laws import sabotage
from tests.laws.acts import Act, Crash
from tests.laws.attacks import OldKey, Replay, Stranger, Tamper
from tests.laws.case import Case
from tests.laws.laws import LAWS
from tests.laws.sabotage import Sabotage
from tests.laws.stage import Play, Theatre
from tests.laws.wire_acts import At, Disturb
from tests.laws.witness import Ran

COLLECTED: dict[str, Any] = {"collect": "tour"}


@pytest.fixture(scope="module")
def collected(theatre: Theatre, tmp_path_factory: pytest.TempPathFactory) -> Case:
    """A session of collected tours in which nothing happens."""
    return Play(theatre, tmp_path_factory.mktemp("collected") / "world", [], more=COLLECTED).run()


def test_every_monitor_has_something_to_watch(collected: Case) -> None:
    assert collected.view["phase"] == "COMPLETED"
    for law, monitor in LAWS.items():
        findings = monitor(collected)
        assert findings.breaches == [], law
        assert findings.made >= len(collected.visits), f"{law} compared next to nothing"
    trained = [event.command for event in collected.timeline if isinstance(event, Ran) and event.refused is None]
    tours = [command for command in trained if isinstance(command, gpu.TrainTour)]
    assert [len(tour.parts) for tour in tours] == [2] * len(tours)
    assert not any(isinstance(command, gpu.Train) for command in trained)


SCHEDULES: dict[str, list[Act]] = {
    "tampered and disturbed": [
        Tamper(RegionKind.MODEL, 2), Disturb("fence", 1, "lose"), Disturb("commit", 1, "corrupt"), Replay("copy", 1), Stranger(),
    ],
    "crashed with one waiting": [
        Crash("orchestrator", "grant", 2, "after"), Disturb("copy", 3, "late"), At("fence", 2, "before", OldKey(0)),
    ],
}  # fmt: skip


@pytest.mark.parametrize("mode", [TravelMode.SCOPED, pytest.param(TravelMode.DIRECT, marks=pytest.mark.slow)], ids=str)
@pytest.mark.parametrize("acts", SCHEDULES.values(), ids=SCHEDULES.keys())
def test_laws_hold(acts: list[Act], mode: TravelMode, theatre: Theatre, tmp_path: Path, collected: Case) -> None:
    case = Play(theatre, tmp_path / "world", acts, mode=mode, more=COLLECTED).run()
    assert case.view["phase"] == "COMPLETED", case.view["failure"]
    assert case.view["model"]["digest"] == collected.view["model"]["digest"]


BROKEN: list[tuple[str, Sabotage, list[Act]]] = [
    ("L1", sabotage.fences_kill_nothing, [Crash("holder-city", "copy", 1, "before"), At("fence", 2, "before", OldKey(0))]),
    ("L2", sabotage.scrubs_lie, []),
    ("L3", sabotage.verifies_before_the_fence, []),
    ("L7", sabotage.scrubs_lie, []),
    ("L7", sabotage.gradients_are_kept, []),
    ("L8", sabotage.read_back_is_not_compared, [Tamper(RegionKind.MODEL, 1)]),
]  # fmt: skip


@pytest.mark.usefixtures("collected")
@pytest.mark.parametrize(
    ("law", "broken", "acts"), BROKEN, ids=[f"{law}-{broken.__name__}" for law, broken, _ in BROKEN]
)
def test_the_monitor_reports(law: str, broken: Sabotage, acts: list[Act], theatre: Theatre, tmp_path: Path) -> None:
    play = Play(theatre, tmp_path / "world", acts, patience_s=20, more=COLLECTED)
    with pytest.MonkeyPatch.context() as patch:
        broken(patch, theatre)
        found = play.breaches(law)
    theatre.power_cycle()  # what was broken may have left anything behind
    assert found, f"the monitor saw nothing; the session: {play.case.view}"
