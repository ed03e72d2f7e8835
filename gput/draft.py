"""A manifest to begin with, from a program and the holders that are to take part. Asks nobody; knows no service."""

from __future__ import annotations

from collections.abc import Mapping

from shared.claims.archive import Archive
from shared.claims.manifest import EvidencePolicy, Manifest, RosterEntry

PAGE = 4096
ROUNDS = STEPS = 10


def draft(archive: Archive, holders: Mapping[str, str], *, emulated: bool) -> Manifest:
    """A sound manifest over `holders` (name -> key fingerprint): the program's own defaults, and a buffer that a visit fits into.

    Args:
        emulated: accept emulated hardware only; else NVIDIA's GPUs in Intel's or AMD's confidential VMs.
    """
    program = archive.manifest
    gpu = EvidencePolicy(roots=("EMULATED",) if emulated else ("NVIDIA",))
    cpu = EvidencePolicy(roots=("EMULATED",) if emulated else ("INTEL", "AMD"))
    visit_bytes = STEPS * program.defaults.batch_size * program.records.record_bytes
    return Manifest(
        name=f"{program.name} with {', '.join(holders)}"[:80],
        program=archive.digest.hex(),
        training=program.defaults,
        roster=tuple(RosterEntry(holder=name, key=key, evidence=cpu) for name, key in holders.items()),
        gpu_evidence=gpu,
        orchestrator_evidence=cpu,
        rounds=ROUNDS,
        steps_per_visit=STEPS,
        buffer_bytes=max(PAGE, -(-visit_bytes // PAGE) * PAGE),
        privacy_floor=program.defaults.batch_size,
    )
