"""What a rehearsal runs and what it says: the manifest that is played, its memory, what visits tell. Starts no process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from data_holder.policy import load_policy
from data_holder.policy_rules import allowed, evaluate
from gput.draft import draft
from gput.local.rehearsal import policy_for
from gput.rehearsing import (
    MOST_BYTES,
    Remark,
    happened,
    held_out_records,
    holder_row,
    measured,
    memory,
    records_for,
    rehearsed,
    rows_of,
    too_little_memory,
)
from shared.claims.archive import Archive, open_archive
from shared.claims.manifest import (
    Acceptance,
    Contributor,
    EvidencePolicy,
    Manifest,
    OutputPolicy,
    Predecessor,
    Validation,
)
from shared.claims.privacy import Privacy
from shared.claims.training import Schedule
from shared.names import TravelMode
from tests.built import built
from tests.gpu.gpu_world import CLASSES, FEATURES

PRIVATE = Privacy(max_grad_norm=1.0, noise_multiplier=1.0, delta=1e-6, max_epsilon=8.0)
KEYS = {"north": "aa" * 32, "city": "bb" * 32}


@pytest.fixture(scope="module")
def archive() -> Archive:
    return open_archive(built("classifier", features=FEATURES, classes=CLASSES)[0])


def asked(archive: Archive, **changes: Any) -> Manifest:
    made = draft(archive, {"north": "00" * 32, "city": "11" * 32}, emulated=False)
    whole = made.model_copy(
        update={"steps_per_visit": 4, "privacy_floor": made.training.batch_size, **changes}
    ).model_dump(mode="json")
    return Manifest.model_validate(whole)


def visit(holder: str = "north", **changes: Any) -> dict[str, Any]:
    usual = {
        "holder": holder,
        "index": 1,
        "outcome": "closed",
        "reason": None,
        "mean_loss": 1.0,
        "records": 8,
        "durations": {"train": 0.5},
    }
    return usual | changes


def codes(remarks: Any) -> list[tuple[str, str, str]]:
    return [(remark.about, remark.level, remark.code) for remark in remarks]


# ------------------------------------------------------------------ what is run


def test_a_successor_is_rehearsed_without_its_predecessor(archive: Archive) -> None:
    """Whose model no orchestrator of this machine has; the schedule goes on where it would."""
    contributor = Contributor(holder="north", key="00" * 32, records=16)
    schedule = Schedule(kind="cosine", warmup_steps=2)
    says = Predecessor(
        session="s_aaaaaaaaaaaaaaaa", manifest="4" * 64, model="1" * 64, optimiser="2" * 64, step=6, log_size=3, log_root="3" * 64,
        contributors=(contributor,),
    )  # fmt: skip
    manifest = asked(archive, predecessor=says, rounds=2)
    manifest = manifest.model_copy(update={"training": manifest.training.model_copy(update={"schedule": schedule})})
    run, changes = rehearsed(manifest, KEYS, visits=3)
    assert (run.predecessor, run.training.schedule.total_steps) == (None, manifest.optimiser_steps)
    assert manifest.optimiser_steps == 6 + 2 * 2 * 4
    assert any("predecessor" in change for change in changes)


def test_it_is_the_manifest_but_for_what_it_says(archive: Archive) -> None:
    manifest = asked(archive, privacy_floor=3, acceptance=Acceptance(history=9), rounds=50)
    run, changes = rehearsed(manifest, KEYS, visits=3)
    assert {entry.holder: entry.key for entry in run.roster} == KEYS
    assert all(
        policy == EvidencePolicy(roots=("EMULATED",)) for policy in (run.gpu_evidence, run.orchestrator_evidence)
    )
    other = {"name", "rounds", "roster", "gpu_evidence", "orchestrator_evidence"}
    assert run.model_dump(exclude=other) == manifest.model_dump(exclude=other)
    assert (run.rounds, changes[1:]) == (3, ["3 of 50 rounds"])
    assert rehearsed(asked(archive, rounds=2), KEYS, visits=3)[0].rounds == 2


@pytest.mark.parametrize("quorum", [None, 1, 2])
@pytest.mark.parametrize("shares", [None, 1, 2])
@pytest.mark.parametrize("mode", list(TravelMode))
@pytest.mark.parametrize("continuation", [None, "refused", "remaining"])
def test_the_policy_of_its_holders_approves_whatever_it_asks(
    continuation: str | None, mode: TravelMode, shares: int | None, quorum: int | None, archive: Archive, tmp_path: Path
) -> None:
    changes = {"continuation": continuation, "travel_mode": mode, "recovery_shares": shares, "quorum": quorum}
    run, _ = rehearsed(asked(archive, output=OutputPolicy(release_to=("owner", "holders")), **changes), KEYS, visits=3)
    (tmp_path / "policy.toml").write_text(policy_for(run))
    policy = load_policy(tmp_path / "policy.toml")
    for holder in KEYS:
        findings = evaluate(policy, run, archive.manifest, holder, None)
        assert allowed(findings), [finding for finding in findings if not finding.ok]


def test_shorter_visits_keep_the_schedule_of_the_whole_session(archive: Archive) -> None:
    training = archive.manifest.defaults.model_copy(update={"schedule": Schedule(kind="cosine", warmup_steps=5)})
    manifest = asked(archive, rounds=50, training=training)
    run, changes = rehearsed(manifest, KEYS, visits=2, steps=3)
    assert (run.steps_per_visit, changes[2]) == (3, "3 steps per visit at most")
    assert run.training.schedule.total_steps == manifest.optimiser_steps == 400
    assert rehearsed(manifest, KEYS, visits=2, steps=9)[0].steps_per_visit == 4


def test_nothing_is_decided_by_made_up_held_out_records(archive: Archive) -> None:
    rule = Validation(dataset="22" * 32, records=7, every_visits=2, max_loss_increase=0.1, patience=1, release="best")
    manifest = asked(archive, validation=rule)
    run, changes = rehearsed(manifest, KEYS, visits=2, held_out=("33" * 32, 7))
    assert run.validation == Validation(dataset="33" * 32, records=7, every_visits=2)
    assert "held-out" in changes[-1]
    assert held_out_records(manifest, archive.manifest) == 7
    assert held_out_records(asked(archive), archive.manifest) == 0
    many = asked(archive, validation=rule.model_copy(update={"records": 10**9}))
    assert held_out_records(many, archive.manifest) * archive.manifest.records.record_bytes <= MOST_BYTES


def test_every_visit_sees_every_record(archive: Archive) -> None:
    run, _ = rehearsed(asked(archive), KEYS, visits=3)
    assert records_for(run, archive.manifest, "north") == 4 * archive.manifest.defaults.batch_size


def test_made_up_records_have_no_privacy_to_spend(archive: Archive) -> None:
    run, changes = rehearsed(asked(archive, privacy=PRIVATE), KEYS, visits=3)
    assert run.privacy == PRIVATE.model_copy(update={"max_epsilon": None})
    assert "epsilon" in changes[-1]


# ------------------------------------------------------------------ what memory it takes


def test_the_memory_that_a_session_asks_for(archive: Archive) -> None:
    held = Validation(dataset="22" * 32, records=7)
    found = memory(asked(archive, buffer_bytes=8192, validation=held), archive.manifest)
    assert found["dataset"] == 8192
    assert found["validation"] == 7 * archive.manifest.records.record_bytes
    assert found["committed"] == found["model"] + found["optimiser"]
    assert found["total"] == sum(found.values()) - found["total"]
    assert memory(asked(archive, buffer_bytes=8192, collect="tour"), archive.manifest)["dataset"] == 2 * 8192


@pytest.mark.parametrize(("beside", "whole", "share", "said"), [
    (20.0, 100.0, 0.5, []), (70.0, 100.0, 1.0, []), (71.0, 100.0, 1.01, [("training.batch_size", "note", "gpu-memory-short")]),
    (None, 100.0, None, []), (20.0, None, None, []), (20.0, 0.0, None, []), (None, None, None, []),
])  # fmt: skip
def test_what_training_took_beside_it_is_held_against_the_gpu(
    beside: float | None, whole: float | None, share: float | None, said: list[Any]
) -> None:
    told = {"gput_gpu_training_bytes": beside, "gput_gpu_memory_bytes": whole, "gput_gpu_boots_total": 3.0}
    found = measured(30, {name: value for name, value in told.items() if value is not None})
    assert (found.training_bytes, found.gpu_bytes, found.share) == (beside, whole or None, share)
    assert "resident" in found.means
    assert codes(too_little_memory(30, found)) == said


# ------------------------------------------------------------------ what visits tell


FAILED = "program-failed: The program failed on a batch of these records"


@pytest.mark.parametrize(("reason", "remedy"), [
    ("the training loss is not finite", "learning rate"), (FAILED, "below the number of"),
    ("compute-out-of-memory: the compute process ran out of memory", "Lower batch_size"), ("lease-expired", "The reason says"),
    (None, "The reason says"),
])  # fmt: skip
def test_a_visit_that_failed_says_what_to_do(reason: str | None, remedy: str, archive: Archive) -> None:
    [remark] = happened(asked(archive), "north", [visit(outcome="rejected", reason=reason, mean_loss=None)])
    assert (remark.level, remark.code) == ("fault", "visit-failed")
    assert remedy in remark.remedy


@pytest.mark.parametrize(("losses", "said"), [
    ((2.0, 1.0), []), ((1.0, 1.0), ["loss-not-falling"]), ((1.0, 5.0, 2.0), ["loss-not-falling"]), ((1.0,), []), ((None, None), []),
])  # fmt: skip
def test_a_loss_that_does_not_fall_is_for_the_reader_to_judge(
    losses: tuple[float | None, ...], said: list[str], archive: Archive
) -> None:
    remarks = list(happened(asked(archive), "north", [visit(mean_loss=loss) for loss in losses]))
    assert [(remark.level, remark.code) for remark in remarks] == [("note", code) for code in said]


def test_a_holders_row(archive: Archive) -> None:
    manifest, batch = asked(archive, rounds=50), archive.manifest.defaults.batch_size
    run, _ = rehearsed(manifest, KEYS, visits=3)
    visits = [
        visit(mean_loss=3.0, durations={"plan": 0.1, "train": 0.9}),
        visit(outcome="recalled"),
        visit(mean_loss=2.0),
    ]
    row = holder_row(manifest, run, archive.manifest, "north", visits, 400)
    assert (row["visits"], row["records"], row["first_loss"], row["last_loss"], row["falling"]) == (
        "2 of 3",
        16,
        3.0,
        2.0,
        True,
    )
    assert (row["visit_ms"], row["passes"], row["epsilon"]) == (750.0, 50 * 4 * batch / 400, None)
    assert row["buffer_needed"] == 4 * batch * archive.manifest.records.record_bytes <= row["buffer_asked"]
    empty = holder_row(manifest, run, archive.manifest, "north", [], None)
    assert (empty["visits"], empty["first_loss"], empty["falling"], empty["visit_ms"], empty["passes"]) == (
        "0 of 3",
        None,
        None,
        None,
        None,
    )


def test_faults_come_first() -> None:
    remarks = [
        Remark("a", "note", "r", "d", "x"),
        Remark("b", "fault", "r", "d", "y"),
        Remark("c", "note", "r", "d", "z"),
    ]
    assert [row["about"] for row in rows_of(remarks)] == ["b", "a", "c"]
