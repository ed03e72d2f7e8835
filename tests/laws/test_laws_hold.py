"""Laws L1-L10 over sessions whose faults, crashes, words and attacks hypothesis chooses: watched all along, and the same model at the end.

A failure shows a small schedule; `@example(acts=[...])` with it keeps the case.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings

from shared.names import RegionKind, TravelMode
from tests.laws.acts import Act, Crash, Say, Visits
from tests.laws.attacks import OldKey, Replay, Stranger, Tamper
from tests.laws.case import Case
from tests.laws.ending import ends_as_it_should
from tests.laws.laws import LAWS
from tests.laws.schedules import ATTACKS, FAULTS, WORDS, schedules
from tests.laws.stage import LawsBroken, Play, Theatre
from tests.laws.wire_acts import At, Disturb

SETTINGS = settings(
    deadline=None, database=None, print_blob=True, phases=(Phase.explicit, Phase.generate, Phase.shrink),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)  # fmt: skip


def _holds(theatre: Theatre, folder: Path, acts: list[Act], undisturbed: Case) -> None:
    """One play; its files go away with it."""
    try:
        case = Play(theatre, folder / "world", acts).run()
        ending = ends_as_it_should(case, acts, undisturbed.view).breaches
        if ending:
            raise LawsBroken({"the end": ending}, acts)
    finally:
        shutil.rmtree(folder / "world", ignore_errors=True)


def test_every_monitor_has_something_to_watch(undisturbed: Case) -> None:
    """In a session that nobody disturbs every law holds, and no monitor is content because it saw nothing."""
    assert undisturbed.view["phase"] == "COMPLETED"
    visits = len(undisturbed.visits)
    for law, monitor in LAWS.items():
        findings = monitor(undisturbed)
        assert findings.breaches == [], law
        assert findings.made >= visits, f"{law} compared next to nothing"


@pytest.mark.parametrize("mode", [TravelMode.PAPER, TravelMode.DIRECT])
def test_laws_hold_in_every_travel_mode(mode: TravelMode, theatre: Theatre, tmp_path: Path, undisturbed: Case) -> None:
    """The keys that a holder is shown are other keys in each mode, and the GPU is commanded in another order: the laws are the same."""
    acts: list[Act] = [
        Visits(1),
        Crash("orchestrator", "train", 2, "after"),
        Crash("holder-city", "report", 2, "before"),
    ]
    case = Play(theatre, tmp_path / "world", acts, mode=mode).run()
    assert case.view["model"]["digest"] == undisturbed.view["model"]["digest"]
    for law, monitor in LAWS.items():
        assert monitor(case).made >= len(undisturbed.visits), f"{law} compared next to nothing"


@example(
    acts=[Crash("orchestrator", "commit", 2, "after"), Disturb("copy", 3, "late"), At("train", 2, "before", OldKey(0))]
)
@example(
    acts=[
        Tamper(RegionKind.MODEL, 2),
        Disturb("fence", 1, "lose"),
        Disturb("commit", 2, "corrupt"),
        Replay("copy", 1),
        Visits(2),
        Stranger(),
    ]
)
@settings(SETTINGS, max_examples=3, derandomize=True)
@given(acts=schedules(*FAULTS, *ATTACKS, longest=4))
def test_laws_hold(acts: list[Act], theatre: Theatre, tmp_path: Path, undisturbed: Case) -> None:
    _holds(theatre, tmp_path, acts, undisturbed)


@pytest.mark.slow
@example(acts=[Say("pause"), Visits(1), Crash("orchestrator", "inbox", 1, "after"), Say("resume")])
@settings(SETTINGS, max_examples=40)
@given(acts=schedules(*FAULTS, *WORDS))
def test_laws_hold_under_faults_and_words(acts: list[Act], theatre: Theatre, tmp_path: Path, undisturbed: Case) -> None:
    _holds(theatre, tmp_path, acts, undisturbed)


@pytest.mark.slow
@example(acts=[Disturb("mux", 1, "repeat")])
@example(acts=[At("setup", 1, "after", Replay("quote", which)) for which in range(8)])  # launches of CVMs among them
@settings(SETTINGS, max_examples=60)
@given(acts=schedules(*FAULTS, *WORDS, *ATTACKS, longest=8))
def test_laws_hold_under_everything(acts: list[Act], theatre: Theatre, tmp_path: Path, undisturbed: Case) -> None:
    _holds(theatre, tmp_path, acts, undisturbed)
