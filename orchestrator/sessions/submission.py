"""What can be known about a manifest when it is submitted, checked all at once. The caller says what is known; only given weights are read.

Every finding names the field, the reason and the remedy; nothing that has no feature yet is ignored (design 4.1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from orchestrator.weights import WeightsMap, map_weights
from shared.claims.accountant import privacy_findings
from shared.claims.faults import Finding, ManifestRefused, judged
from shared.claims.free_text import unseen
from shared.claims.layout import plan_memory, region_lengths
from shared.claims.manifest import EvidencePolicy, Manifest
from shared.claims.policy_lint import lint_manifest
from shared.claims.program import ProgramManifest, WeightsFile
from shared.claims.training import SGD
from shared.errors import GputError, Unavailable
from shared.names import RegionKind
from shared.protocol.travel import buffers

GPU_PAGE = 4096
"""Bytes: the GPU allocates whole pages."""

UPLOAD = "`gput session submit … --upload FILE`"


@dataclass(frozen=True)
class Known:
    """What the orchestrator knows at this moment: digests it stores, who is enrolled, what it runs on.

    `parties` maps names of enrolled holders to key fingerprints; `weights` answers the path of a weights file, which is not verified yet;
    `mixed` says why the program cannot be trained privately, "" if it can; `changing` names state that a batch changes, "" if there is
    none; `archive_bytes` is the length of its archive, `gpu_memory`
    what the GPU may allocate, None while its agent does not answer.
    """

    programs: Mapping[str, ProgramManifest]
    weights: Mapping[str, Callable[[], Path]]
    validation: Mapping[str, int]
    parties: Mapping[str, str]
    gpus: tuple[str, ...]
    allow_emulated: bool
    mixed: str = ""
    changing: str = ""
    archive_bytes: int = 0
    gpu_memory: int | None = None


@dataclass(frozen=True)
class Place:
    """Where a session would run: its GPU, all that are here, what that one may allocate (None: unknown), and whether emulated evidence
    may count."""

    gpu: str
    gpus: tuple[str, ...]
    gpu_memory: int | None
    allow_emulated: bool


def read_manifest(document: bytes) -> Manifest:
    """The manifest in its one canonical form.

    Raises:
        ManifestRefused: not a manifest, an unknown field or feature, or not canonical.
    """
    manifest = judged(document)
    if manifest.canonical() != document:
        raise ManifestRefused([
            Finding("document", "the manifest is not in canonical form, or leaves a field unstated",
                    "Sign and send the bytes that Manifest.canonical() gives.", "not-canonical"),
        ])  # fmt: skip
    return manifest


def check_manifest(manifest: Manifest, gpu: str, known: Known) -> None:
    """Everything that can be known before anything runs.

    Raises:
        ManifestRefused: with every finding. Unavailable: given weights cannot be read now.
    """
    findings = [
        *_check_name(manifest), *_check_training(manifest), *_check_program(manifest, known),
        *_check_roster(manifest, known), *_check_place(manifest, gpu, known),
        *_check_privacy(manifest, known), *lint_manifest(manifest).errors,
    ]  # fmt: skip
    if findings:
        raise ManifestRefused(findings)


def _check_name(manifest: Manifest) -> Iterator[Finding]:
    """Here and not in the manifest's type: a session that was accepted with such a name goes on."""
    if found := unseen(manifest.name):
        yield Finding(
            "name", f"holds what cannot be seen: {found}", "Write it in characters that can be printed.", "unseen-text"
        )


def _check_training(manifest: Manifest) -> Iterator[Finding]:
    """Here for the same reason."""
    optimizer = manifest.training.optimizer
    if isinstance(optimizer, SGD) and optimizer.nesterov and not optimizer.momentum:
        yield Finding("training.optimizer.nesterov", "has no effect without momentum", "State a momentum, or leave nesterov out.",
                      "unsupported-feature")  # fmt: skip


def _check_program(manifest: Manifest, known: Known) -> Iterator[Finding]:
    program = known.programs.get(manifest.program)
    if program is None:
        yield Finding("program", f"no program with digest {manifest.program[:16]}… is stored here",
                      f"Upload the archive first: {UPLOAD}.", "unknown-program")  # fmt: skip
    yield from _check_weights(manifest, program, known)
    yield from _check_validation(manifest, program, known)
    if program is None:
        return
    yield from _check_buffer(manifest, program)
    yield from _check_memory(manifest, program, known)
    if manifest.accumulate is not None and known.changing:
        yield Finding("accumulate", f"the program changes {known.changing!r} with every batch: no tour could be rolled back as one",
                      "Use a program whose state does not change, for instance with LayerNorm or GroupNorm in place of BatchNorm.",
                      "unsupported-feature")  # fmt: skip


def _check_weights(manifest: Manifest, program: ProgramManifest | None, known: Known) -> Iterator[Finding]:
    digest = weights_digest(manifest, program)
    if digest is None:
        return
    if digest not in known.weights:
        yield Finding("initial_weights", f"no weights with digest {digest[:16]}… are stored here",
                      f"Upload the safetensors file first: {UPLOAD}.", "unknown-weights")  # fmt: skip
        return
    if program is None:
        return
    try:
        _given_weights(digest, manifest, program, known).check_finite()
    except Unavailable:
        raise  # the disk does not give them now, which says nothing of the manifest
    except GputError as error:
        yield Finding("initial_weights", error.detail, error.remedy or "Use weights of this program.", error.code)


def _given_weights(digest: str, manifest: Manifest, program: ProgramManifest, known: Known) -> WeightsMap:
    return map_weights(known.weights[digest](), digest, plan_memory(program, manifest.training).model)


def start_model(manifest: Manifest, known: Known) -> str | None:
    """Digest (BLAKE3, hex) of the model that given weights make in the GPU; None where the GPU makes the first model from a seed, or
    has its predecessor's.

    Raises:
        InvalidData: as `map_weights`, where the file has become another since `check_manifest`.
    """
    program = known.programs[manifest.program]
    digest = weights_digest(manifest, program)
    return None if digest is None else _given_weights(digest, manifest, program, known).region_digest()


def weights_digest(manifest: Manifest, program: ProgramManifest | None) -> str | None:
    """SHA-256 of the weights to start from; None means: made inside the GPU from the program's seed, or the predecessor's.

    Args:
        program: None where it is not known; then what it names is not, either.
    """
    if manifest.predecessor is not None:
        return None
    if manifest.initial_weights is not None:
        return manifest.initial_weights
    if program is None or not isinstance(program.initial_weights, WeightsFile):
        return None
    return program.initial_weights.sha256


def _check_buffer(manifest: Manifest, program: ProgramManifest) -> Iterator[Finding]:
    batch, record = manifest.training.batch_size, program.records.record_bytes
    for number, entry in enumerate(manifest.roster):
        steps = entry.steps_per_visit or manifest.steps_per_visit
        need = steps * batch * record
        if need > manifest.buffer_bytes:
            field = f"roster.{number}.steps_per_visit" if entry.steps_per_visit else "buffer_bytes"
            yield Finding(field, f"a visit to {entry.holder} needs {need} bytes ({steps} steps × {batch} records × {record} bytes); "
                          f"the buffer has {manifest.buffer_bytes}",
                          f"Raise buffer_bytes to at least {need}, or lower steps or batch size.", "buffer-too-small")  # fmt: skip


def _check_validation(manifest: Manifest, program: ProgramManifest | None, known: Known) -> Iterator[Finding]:
    validation = manifest.validation
    if validation is None:
        return
    size = known.validation.get(validation.dataset)
    if size is None:
        yield Finding("validation.dataset", f"no validation dataset with digest {validation.dataset[:16]}… is stored here",
                      f"Upload it first: {UPLOAD}.", "unknown-validation-dataset")  # fmt: skip
    elif program is not None and size != validation.records * program.records.record_bytes:
        yield Finding("validation.records", f"{validation.records} records of {program.records.record_bytes} bytes are not {size} bytes",
                      f"State {size // program.records.record_bytes} records, or upload the matching file.",
                      "validation-size-mismatch")  # fmt: skip


def _check_privacy(manifest: Manifest, known: Known) -> Iterator[Finding]:
    if manifest.privacy is None:
        return
    if known.mixed:
        yield Finding("privacy", f"the program cannot be trained privately: {known.mixed}",
                      "Use a program whose samples are independent, for instance with LayerNorm or GroupNorm in place of BatchNorm.",
                      "samples-not-independent")  # fmt: skip
    yield from privacy_findings(manifest)


def _check_memory(manifest: Manifest, program: ProgramManifest, known: Known) -> Iterator[Finding]:
    if known.gpu_memory is None:
        return  # the GPU will say it itself
    validation = manifest.validation.records * program.records.record_bytes if manifest.validation is not None else 0
    plan = plan_memory(program, manifest.training, manifest.accumulate is not None)
    lengths = region_lengths(
        plan, buffer_bytes=manifest.buffer_bytes, buffers=buffers(manifest), validation_bytes=validation
    )
    parts = [("program", known.archive_bytes), *((kind.value, length) for kind, length in lengths if length)]
    need = sum(-(-length // GPU_PAGE) * GPU_PAGE for _, length in parts)
    if need > known.gpu_memory:
        largest = max(parts, key=lambda part: part[1])[0]
        yield Finding("buffer_bytes" if largest == RegionKind.DATASET.value else "program",
                      f"the session needs {need} bytes of GPU memory, and the GPU has {known.gpu_memory}: "
                      + ", ".join(f"{name} {length}" for name, length in parts),
                      f"Make the largest part, {largest}, smaller, or use a GPU with more memory.", "gpu-out-of-memory")  # fmt: skip


def _check_roster(manifest: Manifest, known: Known) -> Iterator[Finding]:
    for number, entry in enumerate(manifest.roster):
        fingerprint = known.parties.get(entry.holder)
        if fingerprint is None:
            yield Finding(f"roster.{number}.holder", f"{entry.holder} is not an enrolled holder whose key counts",
                          f"Enrol its public key first: `gput party enrol {entry.holder} KEY.pub`; where its key was revoked: "
                          f"`gput party replace-key {entry.holder} KEY.pub`.", "party-not-enrolled")  # fmt: skip
        elif fingerprint != entry.key:
            yield Finding(f"roster.{number}.key", f"{entry.holder} is enrolled with another key ({fingerprint[:16]}…)",
                          "Put the enrolled key's fingerprint into the roster.", "key-mismatch")  # fmt: skip


def _check_place(manifest: Manifest, gpu: str, known: Known) -> Iterator[Finding]:
    if gpu not in known.gpus:
        yield Finding("gpu", f"there is no GPU {gpu!r} here", f"Choose one of: {', '.join(known.gpus)}.", "unknown-gpu")
    policies: list[tuple[str, EvidencePolicy]] = [
        ("gpu_evidence.roots", manifest.gpu_evidence), ("orchestrator_evidence.roots", manifest.orchestrator_evidence),
        *((f"roster.{n}.evidence.roots", entry.evidence) for n, entry in enumerate(manifest.roster)),
    ]  # fmt: skip
    for field, policy in policies:
        if set(policy.roots) == {"EMULATED"} and not known.allow_emulated:
            yield Finding(field, "only emulated evidence would count, and this orchestrator refuses emulated evidence",
                          "Name a hardware root, or start the orchestrator with allow_emulated.", "emulated-not-allowed")  # fmt: skip
