"""What a rehearsal says of a manifest before any visit: room, losses, privacy, ranges. Starts no process."""

from __future__ import annotations

from typing import Any

import pytest

from gput.foreseeing import foreseen
from shared.claims.archive import Archive
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


def test_a_range_that_is_not_declared_is_said(archive: Archive) -> None:
    open_ended = archive.manifest.records.fields[0].model_copy(update={"max": None})
    records = archive.manifest.records.model_copy(update={"fields": (open_ended,)})
    program = archive.manifest.model_copy(update={"records": records})
    assert codes(foreseen(asked(archive), program, None)) == [
        (f"records.{open_ended.name}", "note", "range-not-declared")
    ]
