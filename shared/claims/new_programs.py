"""New programs: packed, and held to what none may hold any more that is built or uploaded now. Runs nothing.

Archives that were accepted before such a rule open as ever (`shared.claims.archive`), for a session that was accepted goes on.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Final

from shared.canonical import cbor_bytes
from shared.claims.archive import Archive, manifest_bytes, open_archive
from shared.claims.data_shapes import has_sparse_gradients
from shared.claims.free_text import unseen
from shared.claims.graph import Graph, GraphKind
from shared.claims.program import FLOATS, PROGRAM_FORMAT, InitRule, ProgramManifest, SeedInit, TensorSpec
from shared.errors import InvalidProgram

_FLOAT32_MOST: Final = (2 - 2**-23) * 2.0**127
_RANGES: Final[dict[str, tuple[float, float]]] = {
    "bool": (0, 1), "uint8": (0, 2**8 - 1), "uint16": (0, 2**16 - 1), "int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1),
    "float32": (-_FLOAT32_MOST, _FLOAT32_MOST), "float64": (-sys.float_info.max, sys.float_info.max),
}  # fmt: skip


def pack(manifest: ProgramManifest, graphs: Mapping[GraphKind, bytes]) -> bytes:
    """A new archive's bytes; the same program always gives the same bytes.

    Raises:
        InvalidProgram: what was packed does not open again, or is refused as new.
    """
    data = cbor_bytes({"format": PROGRAM_FORMAT, "manifest": manifest_bytes(manifest), "graphs": dict(graphs)})
    check_new(open_archive(data))
    return data


def check_new(archive: Archive) -> None:
    """Refuse what an opened archive may hold, and a new program may not.

    Raises:
        InvalidProgram: one sentence naming the fault, and a remedy.
    """
    for graph in archive.graphs.values():
        _check_gradients(graph)
    manifest, init = archive.manifest, archive.manifest.initial_weights
    for text in (manifest.description, manifest.loss_unit):
        if found := unseen(text, but="\n\t"):
            raise InvalidProgram(f"A text of the program holds what cannot be seen: {found}", code="unseen-text",
                                 remedy="Build it again with a description in characters that can be printed.")  # fmt: skip
    if isinstance(init, SeedInit):
        for rule, spec in zip(init.rules, [*manifest.parameters, *manifest.state], strict=True):
            _check_rule(rule, spec)


def _check_gradients(graph: Graph) -> None:
    for position, node in enumerate(graph.nodes):
        if has_sparse_gradients(node):
            raise InvalidProgram(
                f"The {graph.kind} graph's node {position} ({node.op}) has sparse gradients, which no optimiser on a CUDA device takes",
                remedy="Build it again: `gput program build` leaves `sparse=True` out.",
            )


def _check_rule(rule: InitRule, spec: TensorSpec) -> None:
    """That the tensor's dtype holds what the rule makes: it would be filled with infinities, or wrap round."""
    least, most = _RANGES[spec.dtype]
    if spec.dtype not in FLOATS and (rule.kind == "normal" or not rule.value.is_integer()):
        raise InvalidProgram(
            f"The seed rule of {rule.name!r} draws or states a fraction, and the tensor has dtype {spec.dtype}",
            remedy="State a whole number as its `constant`.",
        )
    if not least <= rule.value <= most or rule.std > most:
        raise InvalidProgram(
            f"The seed rule of {rule.name!r} states a number that {spec.dtype} does not hold",
            remedy="State one in the range of the tensor's dtype.",
        )
