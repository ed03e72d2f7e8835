"""What a device statement must say of the end of a visit or a tour, by one rule for orchestrator, holder and readers of a saved log.

Knows no signature. Both signatures can be good and the statement true of a visit that went wrong: that is what receipts are there to show.
"""

from __future__ import annotations

from typing import Any

from shared.canonical.zeros import zeros_digest
from shared.claims.manifest import Manifest
from shared.claims.receipt import DeviceStatement, Receipt, TourStatement


def rose_too_far(manifest: Manifest, before: float | None, after: float | None) -> bool:
    """Whether the held-out loss rose by more than an accepted update may raise it; also if it is no number. Not, if it was not measured."""
    limit = None if manifest.validation is None else manifest.validation.max_loss_increase
    return limit is not None and before is not None and after is not None and not after - before <= limit


def expected_of_verdict(receipt: Receipt, said: DeviceStatement, manifest: Manifest) -> dict[str, tuple[Any, Any]]:
    """As `expected_of_end`, of the losses that the receipt states: what raised them too far was not accepted, and none was told that the
    manifest keeps in the GPU."""
    rose = rose_too_far(manifest, receipt.validation_before, receipt.validation_after)
    return {
        "held-out loss of an accepted visit": (False, receipt.outcome == "closed" and rose),
        "losses told under the privacy floor": (False, receipt.losses_released and _withheld(said, manifest)),
    }


def _withheld(said: DeviceStatement, manifest: Manifest) -> bool:
    """Whether no step can have had as many different records as losses are told of. How many it had only the GPU knows."""
    batch = manifest.training.batch_size
    most = batch if said.mixed is not None else min(batch, said.dataset_records)
    return manifest.privacy is not None or most < manifest.privacy_floor


def expected_of_end(said: DeviceStatement, outcome: str, holder: str, manifest: Manifest) -> dict[str, tuple[Any, Any]]:
    """What is expected and what is said, by name.

    The first call for a length of buffer hashes as many zeros (4 GB/s). How many is the manifest's word: by the statement's own it could be
    made to last for ever.
    """
    room = manifest.buffer_bytes
    return {
        "scrubbed bytes": (room, said.scrubbed_bytes),
        "scrub digest": (zeros_digest(room).hex(), said.scrub_digest),
        "records of its stop": (manifest.steps_for(holder) * manifest.training.batch_size, said.records),
        "records trained on": _trained(said, outcome, holder, manifest),
        **(_unchanged(said) if outcome == "rejected" else {}),
    }


def expected_of_tour(said: TourStatement) -> dict[str, tuple[Any, Any]]:
    """As `expected_of_end`, of a tour's end: gradients were in it, and if they were dropped the model is what it was."""
    return {
        "batches of a tour": (True, said.batches > 0),
        **({} if said.stepped else {"model after a dropped tour": (said.model_before, said.model_after)}),
    }


def _trained(said: DeviceStatement, outcome: str, holder: str, manifest: Manifest) -> tuple[int, int]:
    """Records of the planned steps and of those that were taken: the visit's, or where it was mixed all of the mixture's, each once.

    What was rejected may have ended before, at a loss that is no number or at a record out of range.
    """
    batch = manifest.training.batch_size
    planned = manifest.steps_for(holder) * batch if said.mixed is None else said.mixed.records
    taken = said.steps * batch
    return (planned if outcome == "closed" else max(0, min(taken, planned))), taken


def _unchanged(said: DeviceStatement) -> dict[str, tuple[Any, Any]]:
    """Nothing is left of a rejected visit: not in the model, nor in optimiser and accumulator where the statement has them."""
    added = said.accumulated
    return {
        "model after a rejected visit": (said.model_before, said.model_after),
        **({} if added is None else {"accumulator after a rejected visit": (added.before, added.after)}),
    }
