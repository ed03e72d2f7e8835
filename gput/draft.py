"""A manifest to begin with, from a program and the holders that are to take part. Asks nobody; knows no service."""

from __future__ import annotations

from collections.abc import Mapping

from shared.claims.archive import Archive
from shared.claims.manifest import EvidencePolicy, Manifest, RosterEntry

PAGE = 4096
ROUNDS = STEPS = 10
LEAST_FLOOR = 16
"""What the policy of the operator's guide asks, and those of the demos' holders. What a policy refuses stays refused: a draft that asked
for losses over fewer records would have to be submitted anew."""


def draft(archive: Archive, holders: Mapping[str, str], *, emulated: bool) -> Manifest:
    """A sound manifest over `holders` (name -> key fingerprint): the program's own defaults, a buffer that a visit fits into, a privacy
    floor that holders usually ask.

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
        privacy_floor=max(LEAST_FLOOR, program.defaults.batch_size),
    )
