"""The manifest to begin with keeps the limits that holders are told to set: what their policies refuse stays refused."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from data_holder.policy import load_policy
from data_holder.policy_rules import evaluate
from gput.draft import LEAST_FLOOR, draft
from gput.foreseeing import foreseen
from gput.local.demos.catalogue import DEMOS
from gput.local.job import policy_text
from shared.claims.archive import Archive, open_archive
from tests.built import built
from tests.gpu.gpu_world import CLASSES, FEATURES

GUIDE = Path(__file__).parents[2] / "docs" / "how-to" / "operator.md"


def program(batch: int) -> Archive:
    """One whose usual batch is of so many records."""
    archive = open_archive(built("classifier", features=FEATURES, classes=CLASSES)[0])
    defaults = archive.manifest.defaults.model_copy(update={"batch_size": batch})
    return dataclasses.replace(archive, manifest=archive.manifest.model_copy(update={"defaults": defaults}))


def policies() -> dict[str, str]:
    [told] = re.findall(r"cat > policy\.toml <<'END'\n(.*?)END\n", GUIDE.read_text(), re.DOTALL)
    return {"guide": told, **{name: policy_text(kind(), f'digests = ["{"00" * 48}"]') for name, kind in DEMOS.items()}}


@pytest.mark.parametrize("batch", [8, 32])
@pytest.mark.parametrize("whose", ["guide", *DEMOS])
def test_a_plain_draft_is_within_the_limits(whose: str, batch: int, tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text(policies()[whose])
    archive = program(batch)
    made = draft(archive, {"north": "00" * 32, "city": "11" * 32, "south": "22" * 32}, emulated=True)
    found = evaluate(load_policy(tmp_path / "policy.toml"), made, archive.manifest, "north", None)
    limits = {one.rule: one.ok for one in found if one.rule.startswith("limits.")}
    assert limits.keys() >= {"limits.max_rounds", "limits.min_privacy_floor"}
    assert all(limits.values()), found


@pytest.mark.parametrize(("batch", "said"), [(8, ["step-losses-not-released"]), (16, [])])
def test_a_draft_whose_steps_are_below_the_floor_says_so(batch: int, said: list[str]) -> None:
    archive = program(batch)
    made = draft(archive, {"north": "00" * 32}, emulated=True)
    assert [one.code for one in foreseen(made, archive.manifest, None) if "losses" in one.code] == said


def test_losses_over_fewer_records_than_a_batch_are_never_asked_for() -> None:
    floors = {batch: draft(program(batch), {"north": "00" * 32}, emulated=True).privacy_floor for batch in (1, 8, 64)}
    assert floors == {1: LEAST_FLOOR, 8: LEAST_FLOOR, 64: 64}
