"""What a rehearsal runs, and what its visits say of program, manifest and records. Knows no clock, file, process or service.

A rehearsal is the session of a manifest with holders of made-up records: the same program, training, visits, travel mode and privacy, with
keys and evidence of this machine and fewer rounds. Each way of not fitting is a remark that says of what, why, and what to do.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from gput.models import View
from shared.claims.accountant import spent
from shared.claims.layout import plan_memory, region_lengths
from shared.claims.manifest import EvidencePolicy, Manifest
from shared.claims.program import ProgramManifest
from shared.protocol.travel import buffers

MOST_BYTES = 64 << 20
"""Of made-up records of one holder, and of held-out ones: more would say no more."""
MEANS = (
    "the most that the emulated GPU's compute process had resident at once beyond what it began with, GPU memory not counted, rounded up "
    "to a power of two"
)
"""Beside the figure wherever it is printed: it is of PyTorch on a processor, and a real GPU's kernels take other amounts."""
EMULATED = EvidencePolicy(roots=("EMULATED",))
Level = Literal["fault", "note"]
Views = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Remark:
    """One thing to know before holders are asked. `about`: a holder, a field of the manifest or of the records; a `fault` would end a
    visit or the session, a `note` is for the reader to judge."""

    about: str
    level: Level
    reason: str
    remedy: str
    code: str


class Measured(View):
    """Memory of a rehearsal's training. `training_bytes`: most at once beside GPU memory, as `means` says; `gpu_bytes`: what this machine's
    emulated GPU has; `share`: of that, what the manifest asks for and training come to together. None: not counted."""

    training_bytes: int | None
    gpu_bytes: int | None
    share: float | None
    means: str


class Rehearsed(View):
    """How a rehearsal went. `memory`: bytes of GPU memory by kind of region; `remarks`: what to know or change, faults first."""

    fits: bool
    phase: str
    differs: list[str]
    memory: dict[str, int]
    measured: Measured
    holders: list[dict[str, Any]]
    remarks: list[dict[str, str]]


# ------------------------------------------------------------------ what is run


def rehearsed(
    manifest: Manifest, keys: Mapping[str, str], *, visits: int, steps: int | None = None, held_out: Sequence[Any] = ()
) -> tuple[Manifest, list[str]]:
    """The manifest of the rehearsal, and in words what differs from the one that will be signed.

    Args:
        keys: fingerprint of each holder's key on this machine.
        visits: to each holder at most; steps: of a visit at most, None: as the manifest says.
        held_out: SHA-256 (hex) and number of made-up held-out records, where the manifest has any.
    """
    whole = manifest.model_dump(mode="json")
    changes = ["keys and evidence are of this machine, whose hardware is emulated"]
    for entry in whole["roster"]:
        entry |= {"key": keys[entry["holder"]], "evidence": EMULATED.model_dump(mode="json")}
        if steps is not None and entry["steps_per_visit"] is not None:
            entry["steps_per_visit"] = min(steps, entry["steps_per_visit"])
    whole |= {
        "gpu_evidence": EMULATED.model_dump(mode="json"), "orchestrator_evidence": EMULATED.model_dump(mode="json"),
        "name": f"rehearsal: {manifest.name}"[:80], "rounds": min(manifest.rounds, visits),
    }  # fmt: skip
    if whole["rounds"] < manifest.rounds:
        changes.append(f"{whole['rounds']} of {manifest.rounds} rounds")
    if steps is not None and steps < max(manifest.steps_for(entry.holder) for entry in manifest.roster):
        changes.append(f"{steps} steps per visit at most")
        whole["steps_per_visit"] = min(steps, manifest.steps_per_visit)
    schedule = whole["training"]["schedule"]
    if schedule["kind"] != "constant" and schedule["total_steps"] is None:
        schedule["total_steps"] = (
            manifest.optimiser_steps
        )  # the beginning of the whole session's schedule, not a short one of its own
    if manifest.predecessor is not None:  # whose model is in no orchestrator of this machine
        whole["predecessor"] = None
        changes.append("it starts from the program's own weights, not from its predecessor's model")
    if manifest.privacy is not None and manifest.privacy.max_epsilon is not None:
        whole["privacy"]["max_epsilon"] = None
        changes.append("no limit on epsilon, which is not spent of anybody here")
    if manifest.validation is not None:
        digest, count = held_out
        whole["validation"] = {"dataset": digest, "records": count, "every_visits": manifest.validation.every_visits}
        changes.append("held-out records are made up, so nothing is decided by the loss over them")
    return Manifest.model_validate(whole), changes


def held_out_records(manifest: Manifest, program: ProgramManifest) -> int:
    """How many held-out records are made up: as many as the manifest names, within `MOST_BYTES`."""
    named = manifest.validation.records if manifest.validation is not None else 0
    return min(named, max(1, MOST_BYTES // program.records.record_bytes))


def records_for(manifest: Manifest, program: ProgramManifest, holder: str) -> int:
    """How many records are made up for a holder: those of one visit, so that each visit sees them all; within `MOST_BYTES`.

    Args:
        manifest: the rehearsal's.
    """
    visit = manifest.steps_for(holder) * manifest.training.batch_size
    return max(2, min(visit, MOST_BYTES // program.records.record_bytes))


def buffer_needed(manifest: Manifest, program: ProgramManifest, holder: str) -> int:
    """Bytes of the records of one visit."""
    return manifest.steps_for(holder) * manifest.training.batch_size * program.records.record_bytes


def memory(manifest: Manifest, program: ProgramManifest) -> dict[str, int]:
    """Bytes of GPU memory that the session asks for, by kind of region; what a step's activations take is not among them (`measured`)."""
    held_out = manifest.validation.records * program.records.record_bytes if manifest.validation is not None else 0
    plan = plan_memory(program, manifest.training, manifest.accumulate is not None)
    found: dict[str, int] = {}
    for kind, length in region_lengths(
        plan, buffer_bytes=manifest.buffer_bytes, buffers=buffers(manifest), validation_bytes=held_out
    ):
        found[kind.value] = found.get(kind.value, 0) + length
    return {**found, "total": sum(found.values())}


# ------------------------------------------------------------------ after it ran


def measured(asked: int, gpu: Mapping[str, float]) -> Measured:
    """What training took beside the GPU memory that the session asks for, and the size of the GPU that it ran on. None: nobody counted.

    Args:
        asked: bytes of GPU memory by the manifest; gpu: what the rehearsal's agent measured, by its metrics' names.
    """
    beside, whole = gpu.get("gput_gpu_training_bytes"), gpu.get("gput_gpu_memory_bytes")
    return Measured(
        training_bytes=None if beside is None else int(beside), gpu_bytes=int(whole) if whole else None,
        share=None if beside is None or not whole else round((asked + beside) / whole, 6), means=MEANS,
    )  # fmt: skip


def too_little_memory(asked: int, found: Measured) -> Iterator[Remark]:
    """What `measured` found, if it is more than the GPU has."""
    if found.share is not None and found.share > 1:
        yield Remark(
            "training.batch_size", "note",
            f"training took up to {found.training_bytes} bytes beside the {asked} of GPU memory that the manifest asks for, and this "
            f"machine's emulated GPU has {found.gpu_bytes}", "Lower batch_size, or make the model smaller; then rehearse again.",
            "gpu-memory-short",
        )  # fmt: skip


def happened(manifest: Manifest, holder: str, visits: Views) -> Iterator[Remark]:
    """What the visits to a holder say; all of their attempts, in the order of their planning."""
    for visit in visits:
        if visit["outcome"] not in ("closed", None):
            yield Remark(
                holder, "fault", f"visit {visit['index']} was {visit['outcome']}: {visit['reason'] or 'no reason was given'}",
                _remedy(str(visit["reason"] or "")), "visit-failed",
            )  # fmt: skip
    losses = _losses(visits)
    if len(losses) > 1 and not losses[-1] < losses[0]:
        yield Remark(
            holder, "note", f"the loss did not fall from its first visit ({losses[0]:g}) to its last ({losses[-1]:g})",
            "The same made-up records came each time: try another learning rate or more steps, and see that the loss depends on them.",
            "loss-not-falling",
        )  # fmt: skip


_REMEDIES = {
    "not finite": "Lower the learning rate, clip gradients (grad_clip_norm), or narrow the records' declared range, whose least and "
    "greatest values were among them.",
    "out of memory": "Lower batch_size, or make the model smaller.",
    "failed": "The graph cannot work on every record that its schema allows: see that labels and token ids stay below the number of "
    "classes or embeddings, at both ends of the declared range.",
}  # fmt: skip


def _remedy(reason: str) -> str:
    return next((remedy for words, remedy in _REMEDIES.items() if words in reason), "The reason says what to change.")


def _losses(visits: Views) -> list[float]:
    return [float(v["mean_loss"]) for v in visits if v["outcome"] == "closed" and v["mean_loss"] is not None]


def holder_row(
    manifest: Manifest, run: Manifest, program: ProgramManifest, holder: str, visits: Views, records: int | None
) -> dict[str, Any]:
    """How it went at one holder.

    Args:
        manifest: the one that will be signed; run: the rehearsal's; records: of the holder's dataset, None: unknown.
    """
    closed = [visit for visit in visits if visit["outcome"] == "closed"]
    losses, batch = _losses(visits), manifest.training.batch_size
    planned = spent(manifest, holder, manifest.rounds, records)
    each = [sum(visit["durations"].values()) for visit in closed]
    return {
        "holder": holder, "visits": f"{len(closed)} of {run.rounds}", "records": sum(visit["records"] for visit in closed),
        "first_loss": losses[0] if losses else None, "last_loss": losses[-1] if losses else None,
        "falling": losses[-1] < losses[0] if len(losses) > 1 else None,
        "visit_ms": round(statistics.median(each) * 1e3, 1) if each else None,
        "buffer_needed": buffer_needed(manifest, program, holder), "buffer_asked": manifest.buffer_bytes, "batch": batch,
        "passes": round(manifest.rounds * manifest.steps_for(holder) * batch / records, 2) if records else None,
        "epsilon": planned.epsilon if planned is not None else None,
    }  # fmt: skip


def rows_of(remarks: Sequence[Remark]) -> list[dict[str, Any]]:
    """Remarks as they are printed: faults first."""
    return [asdict(one) for one in sorted(remarks, key=lambda one: one.level)]
