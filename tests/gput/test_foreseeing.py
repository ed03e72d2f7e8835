"""What a rehearsal says of a manifest before any visit: room, losses, privacy, ranges. Starts no process."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gput.foreseeing import foreseen
from gput.rehearsing import Remark, buffer_needed
from shared.claims.archive import Archive
from shared.claims.manifest import Contributor, Manifest, Predecessor
from shared.claims.visit import CursorRange
from shared.protocol.record_order import records_at
from tests.gput.test_rehearsing import PRIVATE, archive, asked, codes

__all__ = ["archive"]


def test_a_manifest_that_fits_is_not_remarked_upon(archive: Archive) -> None:
    fields = tuple(field.model_copy(update={"min": 0.0, "max": 1.0}) for field in archive.manifest.records.fields)
    program = archive.manifest.model_copy(
        update={"records": archive.manifest.records.model_copy(update={"fields": fields})}
    )
    assert list(foreseen(asked(archive), program, None)) == []


@pytest.mark.parametrize(("changes", "records", "expected"), [
    ({"buffer_bytes": 4096, "steps_per_visit": 1000}, None, ("fault", "buffer-too-small")),
    ({"privacy_floor": 100_000}, None, ("note", "losses-not-released")), ({"privacy_floor": 1}, 2, ("note", "batch-over-records")),
    ({"privacy": PRIVATE}, 40, ("fault", "privacy-budget")), ({"privacy": PRIVATE}, 10**5, None), ({"privacy": PRIVATE}, None, None),
])  # fmt: skip
def test_what_needs_no_visit_to_be_known(
    changes: dict[str, Any], records: int | None, expected: tuple[str, str] | None, archive: Archive
) -> None:
    found = foreseen(asked(archive, **changes), archive.manifest, records)
    remarks = [one for one in found if one.code != "range-not-declared"]
    assert codes(remarks) == ([(holder, *expected) for holder in ("north", "city")] if expected else [])
    assert all(remark.reason and remark.remedy for remark in remarks)


@pytest.mark.parametrize(("missing", "said"), [(1, ["losses-not-released"] * 2), (0, ["step-losses-not-released"] * 2)])
def test_a_dataset_below_the_floor_has_no_more_records_for_coming_several_times(
    missing: int, said: list[str], archive: Archive
) -> None:
    few = 2 * archive.manifest.defaults.batch_size
    found = foreseen(asked(archive, privacy_floor=few), archive.manifest, few - missing)
    assert [one.code for one in found if one.code != "range-not-declared"] == said


@pytest.mark.parametrize(("order", "said"), [
    ("shuffled", ["losses-not-released"] * 2), ("sequential", ["step-losses-not-released"] * 2),
])  # fmt: skip
def test_a_shuffled_visit_over_two_passes_may_have_a_record_twice(
    order: str, said: list[str], archive: Archive
) -> None:
    """Whether it does is known from the manifest: the order of every visit is."""
    visit = 4 * archive.manifest.defaults.batch_size
    found = foreseen(asked(archive, privacy_floor=visit, record_order=order), archive.manifest, visit + visit // 2)
    assert [one.code for one in found if one.code != "range-not-declared"] == said


@pytest.mark.parametrize(("changes", "records", "said"), [
    ({"privacy_floor": 16}, None, "step-losses-not-released"), ({"privacy_floor": 8}, None, None),
    ({"privacy_floor": 8}, 7, "losses-not-released"), ({"privacy_floor": 16, "privacy": PRIVATE}, None, None),
    ({"privacy_floor": 16, "collect": "tour"}, 10**5, "step-losses-not-released"),
    ({"privacy_floor": 16, "accumulate": "tour"}, 10**5, "step-losses-not-released"),
], ids=str)  # fmt: skip
def test_a_floor_above_a_batch_keeps_the_losses_of_steps(
    changes: dict[str, Any], records: int | None, said: str | None, archive: Archive
) -> None:
    """As the GPU keeps them: a step has a batch of records, in a mixture and in a round whose gradients add up, too."""
    found = foreseen(asked(archive, **changes), archive.manifest, records)
    assert [one.code for one in found if "losses" in one.code] == ([said] * 2 if said else [])


@pytest.mark.parametrize("side", ["min", "max"])
def test_a_range_that_is_not_declared_is_said(side: str, archive: Archive) -> None:
    open_ended = archive.manifest.records.fields[0].model_copy(update={"min": 0.0, "max": 1.0, side: None})
    records = archive.manifest.records.model_copy(update={"fields": (open_ended,)})
    program = archive.manifest.model_copy(update={"records": records})
    assert codes(foreseen(asked(archive), program, None)) == [
        (f"records.{open_ended.name}", "note", "range-not-declared")
    ]


def longer(manifest: Manifest, steps: int) -> Manifest:
    """With visits of so many steps to the first holder of the roster."""
    first = manifest.roster[0].model_copy(update={"steps_per_visit": steps})
    return manifest.model_copy(update={"roster": (first, *manifest.roster[1:])})


def said_of(manifest: Manifest, archive: Archive, records: int | None = None) -> list[Remark]:
    return [one for one in foreseen(manifest, archive.manifest, records) if one.code != "range-not-declared"]


def test_a_buffer_of_just_a_visit_is_enough_and_one_byte_less_is_not(archive: Archive) -> None:
    manifest = longer(asked(archive), 1000)
    holder, need = manifest.roster[0].holder, buffer_needed(manifest, archive.manifest, manifest.roster[0].holder)
    assert said_of(manifest.model_copy(update={"buffer_bytes": need}), archive) == []
    [short] = said_of(manifest.model_copy(update={"buffer_bytes": need - 1}), archive)
    assert short == Remark(
        holder, "fault", f"a visit needs {need} bytes of records, and buffer_bytes is {need - 1}",
        f"Raise buffer_bytes to at least {need}, or lower steps or batch size.", "buffer-too-small",
    )  # fmt: skip


def test_a_visit_of_just_the_floor_releases_its_loss_and_one_record_less_does_not(archive: Archive) -> None:
    """By the steps of each holder's own visits."""
    batch = archive.manifest.defaults.batch_size
    for records in (None, 2 * batch, 10**5):
        found = said_of(longer(asked(archive, steps_per_visit=1, privacy_floor=2 * batch), 2), archive, records)
        assert [one.code for one in found] == ["step-losses-not-released", "losses-not-released"]
        assert f"a visit has {batch} different records, fewer than privacy_floor ({2 * batch})" in found[1].reason
        assert found[0].reason.startswith(f"a step has {batch} records, fewer than privacy_floor ({2 * batch}): ")
        assert found[0].remedy.startswith(f"Raise batch_size to {2 * batch}, ")
    [first, _] = said_of(asked(archive, steps_per_visit=1, privacy_floor=batch + 1), archive)
    assert (first.code, f"privacy_floor ({batch + 1})" in first.reason) == ("losses-not-released", True)
    assert said_of(asked(archive, steps_per_visit=1, privacy_floor=batch), archive) == []


def test_a_batch_of_just_the_records_has_each_once_and_one_less_does_not(archive: Archive) -> None:
    batch = archive.manifest.defaults.batch_size
    assert said_of(asked(archive, privacy_floor=1), archive, batch) == []
    few = said_of(asked(archive, privacy_floor=1), archive, batch - 1)
    assert [one.reason for one in few] == [
        f"a batch of {batch} is larger than its {batch - 1} records: one step has a record several times"
    ] * 2


def test_a_successor_s_visits_begin_where_its_predecessor_s_ended(archive: Archive) -> None:
    """The one visit is within the first pass, over its end, where a record may come again, or within the third."""
    visit = 4 * archive.manifest.defaults.batch_size
    says = Predecessor(
        session="s_aaaaaaaaaaaaaaaa", manifest="4" * 64, model="1" * 64, optimiser="2" * 64, step=6, log_size=3, log_root="3" * 64,
        contributors=(Contributor(holder="north", key="00" * 32, records=1),),
    )  # fmt: skip
    plan = {"privacy_floor": visit, "record_order": "shuffled", "rounds": 1}
    for behind, said in ((0, "step-losses-not-released"), (1, "losses-not-released"), (3, "step-losses-not-released")):
        north = Contributor(holder="north", key="00" * 32, records=behind * visit)
        before = says.model_copy(update={"contributors": (north,)}) if behind else None
        found = said_of(asked(archive, **plan, predecessor=before), archive, visit + visit // 2)
        assert {one.about: one.code for one in found} == {"north": said, "city": "step-losses-not-released"}


@pytest.mark.parametrize("floor", [5, 8])
def test_the_first_visit_with_too_few_different_records_is_found_whichever_it_is(floor: int, archive: Archive) -> None:
    """By the order that the manifest's seed draws: the second of three visits is over the end of a pass, and may have one twice."""
    batch = archive.manifest.defaults.batch_size
    records, told = batch + batch // 2, set()
    for seed in range(16):
        cursor = CursorRange(start=batch, count=batch, order="shuffled", seed=seed)
        different = len(set(records_at(cursor, records, np.arange(batch)).tolist()))
        plan = asked(archive, privacy_floor=floor, record_order="shuffled", rounds=3, steps_per_visit=1)
        manifest = plan.model_copy(update={"training": plan.training.model_copy(update={"seed": seed})})
        found = said_of(manifest, archive, records)
        assert [one.code for one in found] == (["losses-not-released"] * 2 if different < floor else [])
        assert all(f"a visit has {different} different records" in one.reason for one in found)
        told.add(different)
    assert len(told) > 1
