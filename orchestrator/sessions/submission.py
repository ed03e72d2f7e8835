"""What can be known about a manifest when it is submitted, checked all at once. Pure: the caller says what is known.

Every finding names the field, the reason and the remedy; nothing that has no feature yet is ignored (design 4.1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from orchestrator.weights import map_weights
from shared.claims.layout import plan_memory, region_lengths
from shared.claims.manifest import EvidencePolicy, Manifest, parse_manifest
from shared.claims.program import ProgramManifest, WeightsFile
from shared.errors import BadRequest, GputError, InvalidManifest
from shared.names import RegionKind

GPU_PAGE = 4096
"""Bytes: the GPU allocates whole pages."""


@dataclass(frozen=True)
class Finding:
    """One thing wrong with a manifest."""

    field: str
    reason: str
    remedy: str
    code: str = "invalid-manifest"


class ManifestRefused(InvalidManifest):
    """A manifest with findings; the first one's code stands for all of them."""

    def __init__(self, findings: list[Finding]) -> None:
        first = findings[0]
        more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
        super().__init__(f"{first.field}: {first.reason}{more}", code=first.code, remedy=first.remedy)
        self.errors = [
            {"field": f.field, "message": f.reason, "reason": f.reason, "remedy": f.remedy, "code": f.code}
            for f in findings
        ]


@dataclass(frozen=True)
class Known:
    """What the orchestrator knows at this moment: digests it stores, who is enrolled, what it runs on.

    `parties` maps names of enrolled holders to key fingerprints; `weights` answers the verified path of a weights file; `archive_bytes` is
    the length of the program's archive, `gpu_memory` what the GPU may allocate, None while its agent does not answer.
    """

    programs: Mapping[str, ProgramManifest]
    weights: Mapping[str, Callable[[], Path]]
    validation: Mapping[str, int]
    parties: Mapping[str, str]
    gpus: tuple[str, ...]
    allow_emulated: bool
    archive_bytes: int = 0
    gpu_memory: int | None = None


def read_manifest(document: bytes) -> Manifest:
    """The manifest in its one canonical form.

    Raises:
        ManifestRefused: not a manifest, an unknown field or feature, or not canonical.
    """
    try:
        manifest = parse_manifest(document)
    except ValidationError as error:
        raise ManifestRefused([_translate(item) for item in error.errors(include_url=False)]) from None
    except BadRequest as error:
        raise ManifestRefused([Finding("document", error.detail, "Send the manifest as JSON.")]) from None
    if manifest.canonical() != document:
        raise ManifestRefused([
            Finding("document", "the manifest is not in canonical form, or leaves a field unstated",
                    "Sign and send the bytes that Manifest.canonical() gives.", "not-canonical"),
        ])  # fmt: skip
    return manifest


def _translate(item: object) -> Finding:
    fault: dict[str, object] = dict(item)  # type: ignore[call-overload]  # pydantic's ErrorDetails is a TypedDict
    where = fault.get("loc")
    path = ".".join(str(part) for part in where) if isinstance(where, tuple) else ""
    reason = str(fault.get("msg"))
    if fault.get("type") == "extra_forbidden":
        return Finding(path, "no such field or feature exists", "Remove the field.", "unsupported-feature")
    if fault.get("type") == "literal_error":
        return Finding(
            path, f"{fault.get('input')!r} is not supported: {reason}", "Use a supported value.", "unsupported-feature"
        )
    return Finding(path or "manifest", reason, "Correct the value.")


def check_manifest(manifest: Manifest, gpu: str, known: Known) -> None:
    """Everything that can be known before anything runs.

    Raises:
        ManifestRefused: with every finding.
    """
    findings = [*_check_program(manifest, known), *_check_roster(manifest, known), *_check_place(manifest, gpu, known)]
    if findings:
        raise ManifestRefused(findings)


def _check_program(manifest: Manifest, known: Known) -> Iterator[Finding]:
    program = known.programs.get(manifest.program)
    if program is None:
        yield Finding("program", f"no program with digest {manifest.program[:16]}… is stored here",
                      "Upload the archive first: gput program upload.", "unknown-program")  # fmt: skip
        return
    yield from _check_weights(manifest, program, known)
    yield from _check_buffer(manifest, program)
    yield from _check_validation(manifest, program, known)
    yield from _check_memory(manifest, program, known)


def _check_weights(manifest: Manifest, program: ProgramManifest, known: Known) -> Iterator[Finding]:
    digest = weights_digest(manifest, program)
    if digest is None:
        return
    if digest not in known.weights:
        yield Finding("initial_weights", f"no weights with digest {digest[:16]}… are stored here",
                      "Upload the safetensors file first.", "unknown-weights")  # fmt: skip
        return
    try:
        map_weights(known.weights[digest](), plan_memory(program, manifest.training).model)
    except GputError as error:
        yield Finding("initial_weights", error.detail, error.remedy or "Use weights of this program.", error.code)


def weights_digest(manifest: Manifest, program: ProgramManifest) -> str | None:
    """SHA-256 of the weights to start from; None means: made inside the GPU from the program's seed."""
    if manifest.initial_weights is not None:
        return manifest.initial_weights
    return program.initial_weights.sha256 if isinstance(program.initial_weights, WeightsFile) else None


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


def _check_validation(manifest: Manifest, program: ProgramManifest, known: Known) -> Iterator[Finding]:
    validation = manifest.validation
    if validation is None:
        return
    size = known.validation.get(validation.dataset)
    if size is None:
        yield Finding("validation.dataset", f"no validation dataset with digest {validation.dataset[:16]}… is stored here",
                      "Upload it first.", "unknown-validation-dataset")  # fmt: skip
    elif size != validation.records * program.records.record_bytes:
        yield Finding("validation.records", f"{validation.records} records of {program.records.record_bytes} bytes are not {size} bytes",
                      f"State {size // program.records.record_bytes} records, or upload the matching file.",
                      "validation-size-mismatch")  # fmt: skip


def _check_memory(manifest: Manifest, program: ProgramManifest, known: Known) -> Iterator[Finding]:
    if known.gpu_memory is None:
        return  # the GPU will say it itself
    validation = manifest.validation.records * program.records.record_bytes if manifest.validation is not None else 0
    plan = plan_memory(program, manifest.training)
    lengths = region_lengths(plan, buffer_bytes=manifest.buffer_bytes, validation_bytes=validation)
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
            yield Finding(f"roster.{number}.holder", f"{entry.holder} is not an enrolled holder",
                          "Enrol its public key first: gput party add.", "party-not-enrolled")  # fmt: skip
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
