"""What needs no visit to be known of a manifest: what does not fit, what its owner may not have meant. Knows no holder, no service."""

from __future__ import annotations

from collections.abc import Iterator

from gput.rehearsing import Remark, buffer_needed
from shared.claims.accountant import over_budget
from shared.claims.manifest import Manifest
from shared.claims.program import ProgramManifest
from shared.claims.visit import CursorRange


def steps_untold(manifest: Manifest) -> tuple[str, str] | None:
    """Why no loss of a single step leaves the GPU, and what to do, where the privacy floor is above a batch; else None.

    Of private training no loss is told anyway. Where a dataset is smaller than the floor, no visit's is told either.
    """
    batch, floor = manifest.training.batch_size, manifest.privacy_floor
    if batch >= floor or manifest.privacy is not None:
        return None
    return (
        f"a step has {batch} records, fewer than privacy_floor ({floor}): a visit's mean loss is released, and no step's",
        f"Raise batch_size to {floor}, or ask the holders for a lower floor, if you want to see the losses of steps.",
    )


def foreseen(manifest: Manifest, program: ProgramManifest, records: int | None) -> Iterator[Remark]:
    """What needs no visit to be known.

    Args:
        records: of each holder's dataset; None: nobody knows.
    """
    for field in program.records.fields:
        if field.min is None or field.max is None:
            yield Remark(
                f"records.{field.name}", "note", "its range is not declared on both sides, so made-up values say nothing of its real ones",
                "Declare min and max in the program's record schema.", "range-not-declared",
            )  # fmt: skip
    for entry in manifest.roster:
        yield from _too_little_room(manifest, program, entry.holder)
        yield from _too_few(manifest, entry.holder, records)


def _too_little_room(manifest: Manifest, program: ProgramManifest, holder: str) -> Iterator[Remark]:
    need = buffer_needed(manifest, program, holder)
    if need > manifest.buffer_bytes:
        yield Remark(
            holder, "fault", f"a visit needs {need} bytes of records, and buffer_bytes is {manifest.buffer_bytes}",
            f"Raise buffer_bytes to at least {need}, or lower steps or batch size.", "buffer-too-small",
        )  # fmt: skip


def _too_few(manifest: Manifest, holder: str, records: int | None) -> Iterator[Remark]:
    batch, visit = manifest.training.batch_size, manifest.steps_for(holder) * manifest.training.batch_size
    over = over_budget(manifest, holder, records)
    if over:
        yield Remark(holder, "fault", over, "Plan fewer rounds, more noise, or more epsilon.", "privacy-budget")
    brings = visit if records is None else _fewest(manifest, holder, records)
    if brings < manifest.privacy_floor:
        yield Remark(
            holder, "note",
            f"a visit has {brings} different records, fewer than privacy_floor ({manifest.privacy_floor}): no loss is released",
            "Lengthen the visits, or ask for more records, if you want to see losses.", "losses-not-released",
        )  # fmt: skip
    elif (untold := steps_untold(manifest)) is not None:
        reason, remedy = untold
        yield Remark(holder, "note", reason, remedy, "step-losses-not-released")
    if records is not None and records < batch:
        yield Remark(
            holder, "note", f"a batch of {batch} is larger than its {records} records: one step has a record several times",
            "Lower batch_size, or ask for more records.", "batch-over-records",
        )  # fmt: skip


def _fewest(manifest: Manifest, holder: str, records: int) -> int:
    """Different records of a visit with fewer of them than the privacy floor, if there is one; else enough for it."""
    # With numpy, which the shape of this module's answers is told without.
    from shared.protocol.different_records import fewest

    visit, found = manifest.steps_for(holder) * manifest.training.batch_size, manifest.privacy_floor
    for start in range(
        manifest.records_behind(holder), manifest.records_behind(holder) + manifest.rounds * visit, visit
    ):
        cursor = CursorRange(start=start, count=visit, order=manifest.record_order, seed=manifest.training.seed)
        found = fewest(cursor, records, visit, 1, manifest.privacy_floor)
        if found < manifest.privacy_floor:
            break
    return found
