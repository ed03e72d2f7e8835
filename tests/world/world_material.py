"""What every world is made of: a manufactured installation, a small program, private records with canaries. Knows no service."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from gput.local.installation import HolderSpec, Installation
from shared.canonical import sha256
from shared.claims.archive import open_archive
from shared.claims.manifest import EvidencePolicy, Manifest, RosterEntry, Validation
from shared.claims.training import AdamW, TrainingOptions
from shared.crypto.signing import PartyKey
from tests.built import built

HOLDERS = ("city", "harbour", "north")
FEATURES, CLASSES, BATCH, STEPS, ROUNDS = 16, 4, 8, 3, 2
RECORD_BYTES = FEATURES * 4 + 8
RECORDS = 40
EMULATED = EvidencePolicy(roots=("EMULATED",))
POLICY = """dataset = "ehr"
[programs]
operators = ["arithmetic", "linear-algebra", "reductions", "activations", "normalisation", "shape", "loss"]
digests = ["{program}"]
[limits]
max_rounds = 1000
min_privacy_floor = 4
[output]
release_to = ["owner"]
[session]
travel_modes = ["paper", "scoped", "direct"]
min_recovery_shares = 2
[evidence]
allow_emulated = true
"""


@dataclass(frozen=True)
class Material:
    """Made once per test run; `folder` is copied for every world."""

    folder: Path
    archive: bytes
    weights: bytes
    validation: bytes
    canaries: Mapping[str, bytes]
    keys: Mapping[str, PartyKey] = field(repr=False)

    @property
    def program(self) -> str:
        return open_archive(self.archive).digest.hex()

    def copy(self, to: Path) -> Path:
        """A fresh installation of the same keys."""
        shutil.copytree(self.folder, to, dirs_exist_ok=True)
        return to

    def manifest(self, holders: Iterable[str] = HOLDERS, **changes: Any) -> Manifest:
        """The session that most tests run: every holder, two rounds of three steps."""
        roster = tuple(RosterEntry(holder=name, key=self.keys[name].fingerprint, evidence=EMULATED) for name in holders)
        fields: dict[str, Any] = {
            "name": "study", "program": self.program, "roster": roster, "gpu_evidence": EMULATED,
            "orchestrator_evidence": EMULATED, "rounds": ROUNDS, "steps_per_visit": STEPS, "buffer_bytes": 8192,
            "training": TrainingOptions(optimizer=AdamW(lr=1e-2), batch_size=BATCH, seed=7), "privacy_floor": BATCH,
            "validation": Validation(
                dataset=sha256(self.validation).hex(), records=len(self.validation) // RECORD_BYTES, every_visits=len(roster)
            ),
        }  # fmt: skip
        return Manifest(**(fields | changes))


def rows(count: int, seed: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Features that look random and labels that can be learned."""
    draw = np.random.default_rng(seed)
    features = draw.standard_normal((count, FEATURES)).astype("<f4")
    label = (features[:, 0] > 0).astype("<i8") + 2 * (features[:, 1] > 0).astype("<i8")
    return features, label


def record(features: np.ndarray[Any, Any], label: np.ndarray[Any, Any], at: int) -> bytes:
    return features[at].tobytes() + label[at : at + 1].tobytes()


def make_material(folder: Path, holders: Sequence[str] = HOLDERS) -> Material:
    """Manufacture, build, write everybody's data."""
    archive, weights = built("classifier", features=FEATURES, classes=CLASSES, hidden="16", dropout=0.1)
    installation = Installation(folder, [HolderSpec(name, {}) for name in holders])
    installation.prepare()
    keys = {name: installation.holder_key(name) for name in holders}
    keys["owner"] = PartyKey.load(installation.owner_key)
    canaries = {}
    for number, name in enumerate(holders):
        features, label = rows(RECORDS, number)
        np.savez(folder / f"holder-{name}" / "ehr.npz", features=features, label=label)
        canaries[name] = features[5].tobytes()
    policy = POLICY.format(program=open_archive(archive).digest.hex())
    for name in holders:
        (folder / f"holder-{name}" / "policy.toml").write_text(_known_groups(policy))
    features, label = rows(16, 99)
    validation = b"".join(record(features, label, at) for at in range(16))
    return Material(folder, archive, weights, validation, canaries, keys)


def _known_groups(policy: str) -> str:
    # The digest decides; the line of operator groups would have to follow the allow-list.
    return "\n".join(line for line in policy.splitlines() if not line.startswith("operators"))
