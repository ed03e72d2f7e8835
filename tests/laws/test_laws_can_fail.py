"""Each monitor shown to fail: one defence is taken away, and the monitor of the law that it upheld says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from shared.names import RegionKind
from tests.laws import sabotage
from tests.laws.acts import Act, Crash
from tests.laws.attacks import OldKey, Tamper
from tests.laws.laws import LAWS
from tests.laws.sabotage import Sabotage
from tests.laws.stage import Play, Theatre
from tests.laws.wire_acts import At

# The first offer's key is never used by its holder, which dies; its grant is therefore not consumed when it is fenced.
OLD_KEY: list[Act] = [Crash("holder-city", "copy", 1, "before"), At("train", 1, "before", OldKey(0))]
QUICK: list[tuple[str, Sabotage, list[Act]]] = [
    ("L1", sabotage.fences_kill_nothing, OLD_KEY),
    ("L2", sabotage.scrubs_lie, []),
    ("L3", sabotage.verifies_before_the_fence, []),
    ("L4", sabotage.counters_stand_still, []),
    ("L5", sabotage.one_key_for_all_visits, []),
    ("L6", sabotage.records_are_logged, []),
    ("L7", sabotage.gradients_are_kept, []),
    ("L8", sabotage.read_back_is_not_compared, [Tamper(RegionKind.MODEL, 1)]),
    ("L9", sabotage.sealed_records_go_to_the_orchestrator_too, []),
    ("L10", sabotage.emulation_is_believed_by_all, []),
    ("keys", sabotage.visit_keys_are_logged, []),
    ("copies", sabotage.copies_ahead_are_kept, [Crash("orchestrator", "train", 1, "after")]),
]
SLOW: list[tuple[str, Sabotage, list[Act]]] = [
    ("L3", sabotage.never_drains, []),
    ("L5", sabotage.fences_kill_nothing, OLD_KEY),
    ("L5", sabotage.keys_are_rotated_as_in_the_stock_driver, []),
    ("L6", sabotage.an_error_quotes_a_value, []),
    ("L6", sabotage.records_are_cached_on_disk, []),
    ("L7", sabotage.scrubs_lie, []),
    ("L7", sabotage.records_are_staged, []),
    ("L8", sabotage.roll_backs_do_nothing, [Tamper(RegionKind.OPTIMISER, 1)]),
    ("L9", sabotage.receipts_carry_the_model, []),
    ("L10", sabotage.the_device_calls_itself_hardware, []),
]
CASES = [
    pytest.param(law, broken, acts, id=f"{law}-{broken.__name__}", marks=marks)
    for cases, marks in ((QUICK, ()), (SLOW, pytest.mark.slow))
    for law, broken, acts in cases
]


@pytest.mark.usefixtures("undisturbed")
@pytest.mark.parametrize(("law", "broken", "acts"), CASES)
def test_the_monitor_reports(law: str, broken: Sabotage, acts: list[Act], theatre: Theatre, tmp_path: Path) -> None:
    play = Play(theatre, tmp_path / "world", acts, holders=("city",), patience_s=20)
    with pytest.MonkeyPatch.context() as patch:
        broken(patch, theatre)
        found = play.breaches(law)
    theatre.power_cycle()  # what was broken may have left anything behind
    assert found, f"the monitor saw nothing; the session: {play.case.view}"


def test_every_law_has_its_sabotage() -> None:
    assert {law for law, _, _ in QUICK} == set(LAWS)
