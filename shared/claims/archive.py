"""The program archive: canonical CBOR of one manifest and two graphs, opened strictly. Runs nothing.

    {"format": "gput-program/1", "manifest": canonical JSON bytes, "graphs": {"eval": bytes, "train": bytes}}

The program digest is SHA-384 of the manifest bytes, which contain the digest of each graph and of the initial weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic import ValidationError

from shared.canonical import cbor_bytes, cbor_value, json_bytes, json_value, sha384
from shared.claims.graph import Graph, GraphKind, InputKind
from shared.claims.graph_parser import parse_graph
from shared.claims.program import FLOATS, PROGRAM_FORMAT, ProgramManifest, SeedInit
from shared.claims.shape import first_fault
from shared.errors import BadRequest, InvalidProgram

MAX_ARCHIVE_BYTES: Final = 16 * 1024 * 1024
GRAPH_KINDS: Final[tuple[GraphKind, ...]] = ("train", "eval")


@dataclass(frozen=True)
class Archive:
    """An archive that passed every check that needs no tensor library. `digest`: 48 bytes, the program digest."""

    manifest: ProgramManifest
    manifest_bytes: bytes
    digest: bytes
    graphs: dict[GraphKind, Graph]


def manifest_bytes(manifest: ProgramManifest) -> bytes:
    """Canonical JSON (RFC 8785) of a program manifest; its SHA-384 is the program digest."""
    return json_bytes(manifest.model_dump(mode="json"))


def open_archive(data: bytes) -> Archive:
    """Check an archive whole: size, encoding, exact keys, manifest schema, graph digests, graph schema, operators.

    Whoever runs a program opens it by this, at every life. So a rule that is added here must guard something that no accepted session may
    keep on doing; any other belongs to `shared.claims.new_programs`.

    Raises:
        InvalidProgram: one sentence naming the fault. Nothing is opened, imported or run on the way.
    """
    if len(data) > MAX_ARCHIVE_BYTES:
        raise InvalidProgram(f"The program archive has {len(data)} bytes; at most {MAX_ARCHIVE_BYTES} are allowed")
    raw, graph_data = _envelope(data)
    manifest = _manifest(raw)
    declared: dict[InputKind, dict[str, str]] = {
        "parameter": {spec.name: spec.dtype for spec in manifest.parameters},
        "state": {spec.name: spec.dtype for spec in manifest.state},
        "record": {field.name: field.dtype for field in manifest.records.fields},
    }
    graphs: dict[GraphKind, Graph] = {}
    for kind in GRAPH_KINDS:
        if sha384(graph_data[kind]).hex() != manifest.graphs[kind]:
            raise InvalidProgram(
                f"The {kind} graph's digest is not the one in the program manifest",
                code="program-digest-mismatch",
                expected=manifest.graphs[kind],
                got=sha384(graph_data[kind]).hex(),
            )
        graphs[kind] = parse_graph(graph_data[kind], kind, declared)
    _check_operators(manifest, graphs)
    return Archive(manifest, raw, sha384(raw), graphs)


def _envelope(data: bytes) -> tuple[bytes, dict[str, bytes]]:
    # Whatever is no archive is told by its first bytes (deterministic key order), before anything is parsed.
    head = b"\xa3" + cbor_bytes("format") + cbor_bytes(PROGRAM_FORMAT) + cbor_bytes("graphs") + b"\xa2"
    if not data.startswith(head):
        raise InvalidProgram(f"The file is not a {PROGRAM_FORMAT} archive")
    try:
        value: Any = cbor_value(data)
    except BadRequest as error:
        raise InvalidProgram(f"The program archive is not sound: {error.detail}") from error
    if not isinstance(value, dict) or set(value) != {"format", "manifest", "graphs"}:
        raise InvalidProgram("The program archive must have exactly the keys format, graphs and manifest")
    graphs, raw = value["graphs"], value["manifest"]
    if not isinstance(graphs, dict) or set(graphs) != set(GRAPH_KINDS):
        raise InvalidProgram("The program archive must have exactly the graphs eval and train")
    if not isinstance(raw, bytes) or not all(isinstance(graph, bytes) for graph in graphs.values()):
        raise InvalidProgram("The program archive's manifest and graphs must be byte strings")
    return raw, graphs


def _manifest(raw: bytes) -> ProgramManifest:
    try:
        value = json_value(raw)
        manifest = ProgramManifest.model_validate(value)
    except ValidationError as error:
        raise InvalidProgram(f"The program manifest is wrong: {first_fault(error)}") from None
    except BadRequest as error:
        raise InvalidProgram(f"The program manifest is {error.detail}") from error
    if manifest_bytes(manifest) != raw:
        raise InvalidProgram("The program manifest is not in canonical form, or leaves a field unstated")
    if set(manifest.graphs) != set(GRAPH_KINDS):
        raise InvalidProgram("The program manifest must name exactly the graphs eval and train")
    _check_tensors(manifest)
    return manifest


def _check_tensors(manifest: ProgramManifest) -> None:
    specs = [*manifest.parameters, *manifest.state]
    names = [spec.name for spec in specs]
    if len(set(names)) != len(names):
        raise InvalidProgram("The program manifest names one tensor twice")
    for spec in manifest.parameters:
        if spec.dtype not in FLOATS:
            raise InvalidProgram(f"Parameter {spec.name!r} has dtype {spec.dtype}; only floats can be trained")
    init = manifest.initial_weights
    if isinstance(init, SeedInit) and [rule.name for rule in init.rules] != names:
        raise InvalidProgram("The seed rules must name every parameter, then every state tensor, in order")


def _check_operators(manifest: ProgramManifest, graphs: Mapping[GraphKind, Graph]) -> None:
    called = sorted(graphs["train"].operators | graphs["eval"].operators)
    if list(manifest.operators) != called:
        raise InvalidProgram(
            "The program manifest's list of operators is not what its graphs call",
            expected=", ".join(called),
            got=", ".join(manifest.operators),
        )
    used = {name for kind, name in graphs["train"].inputs if kind == "parameter"}
    unused = [spec.name for spec in manifest.parameters if spec.name not in used]
    if unused:
        raise InvalidProgram(f"Parameter {unused[0]!r} is declared but the train graph does not use it")
