"""Strict parser of graph bytes: schema, bounds, backward references; then `check_graph`. Runs nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from typing import Any, Final

from shared.canonical import json_bytes, json_value
from shared.claims.data_shapes import check_shapes
from shared.claims.graph import (
    GRAPH_FORMAT,
    Arg,
    DTypeName,
    Graph,
    GraphKind,
    InputKind,
    MemoryFormat,
    Node,
    Ref,
    check_graph,
    fault,
)
from shared.errors import BadRequest, InvalidProgram

MAX_NODES: Final = 100_000
MAX_LIST: Final = 4096
MAX_KWARGS: Final = 16
MAX_INT: Final = 2**53 - 1
DTYPES: Final = frozenset({"bool", "uint8", "uint16", "int32", "int64", "bfloat16", "float32", "float64"})
MEMORY_FORMATS: Final = frozenset({"contiguous_format", "preserve_format"})
_WORD = re.compile(r"[A-Za-z0-9_ ,.>-]{0,128}", re.ASCII)
_KWARG = re.compile(r"[a-z][a-z_]{0,31}", re.ASCII)
_NO_KWARGS = frozenset({"out", "device", "layout", "pin_memory", "generator", "requires_grad"})


def parse_graph(data: bytes, kind: GraphKind, declared: Mapping[InputKind, Mapping[str, str]]) -> Graph:
    """Strictly parse one graph and check it whole: schema, backward references, operator allow-list, value kinds, shapes.

    Args:
        declared: the manifest's parameters, state and record fields, each with its dtype; a graph may take no other input.
    Raises:
        InvalidProgram: with one sentence naming graph, node and fault.
    """
    try:
        value = json_value(data)
        if json_bytes(value) != data:
            raise fault(kind, "is not in canonical form")
    except BadRequest as error:
        if isinstance(error, InvalidProgram):
            raise
        raise fault(kind, f"is {error.detail}") from error
    top = _object(kind, value, {"format", "kind", "inputs", "nodes", "outputs"}, "graph")
    if top["format"] != GRAPH_FORMAT or top["kind"] != kind:
        raise fault(kind, f"must state format {GRAPH_FORMAT} and kind {kind}")
    inputs = _inputs(kind, top["inputs"], declared)
    raw = _list(kind, top["nodes"], "nodes", MAX_NODES)
    nodes = tuple(_node(kind, len(inputs), position, item) for position, item in enumerate(raw))
    losses, state = _outputs(kind, top["outputs"], len(inputs) + len(nodes), declared["state"].keys())
    graph = Graph(kind, inputs, nodes, losses, state)
    check_graph(graph)
    check_shapes(graph, declared)
    return graph


def _inputs(
    kind: GraphKind, value: Any, declared: Mapping[InputKind, Mapping[str, str]]
) -> tuple[tuple[InputKind, str], ...]:
    result: list[tuple[InputKind, str]] = []
    for item in _list(kind, value, "inputs", MAX_NODES):
        pair = item if isinstance(item, list) and len(item) == 2 and all(isinstance(x, str) for x in item) else None
        if pair is None or pair[0] not in declared or pair[1] not in declared[pair[0]]:
            raise fault(kind, "takes an input that its manifest does not declare")
        result.append((pair[0], pair[1]))
    if len(set(result)) != len(result):
        raise fault(kind, "takes one input twice")
    return tuple(result)


def _node(kind: GraphKind, first: int, position: int, value: Any) -> Node:
    where = f"node {position}"
    item = _object(kind, value, {"op", "args", "kwargs"}, where)
    if not isinstance(item["op"], str) or len(item["op"]) > 100:
        raise fault(kind, f"{where}: the operator must be a short name")
    args = tuple(_arg(kind, a, where, first + position) for a in _list(kind, item["args"], where, 64))
    kwargs = item["kwargs"]
    if not isinstance(kwargs, dict) or len(kwargs) > MAX_KWARGS:
        raise fault(kind, f"{where}: kwargs must be a small object")
    for key in kwargs:
        if not _KWARG.fullmatch(key) or key in _NO_KWARGS:
            raise fault(kind, f"{where}: a keyword argument is not allowed")
    return Node(item["op"], args, tuple((k, _arg(kind, v, where, first + position)) for k, v in sorted(kwargs.items())))


def _arg(kind: GraphKind, value: Any, where: str, limit: int, depth: int = 0) -> Arg:
    """One argument; references must be below `limit`."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int) and abs(value) <= MAX_INT:
        return value
    if isinstance(value, str) and _WORD.fullmatch(value):
        return value
    if isinstance(value, list) and depth < 2:
        items = _list(kind, value, where, MAX_LIST)
        return tuple(_arg(kind, item, where, limit, depth + 1) for item in items)
    if isinstance(value, dict) and len(value) == 1:
        ((tag, inner),) = value.items()
        return _tagged(kind, tag, inner, where, limit)
    raise fault(kind, f"{where}: an argument is none of the allowed forms")


def _tagged(kind: GraphKind, tag: str, inner: Any, where: str, limit: int) -> Arg:
    if tag == "ref" and type(inner) is int:
        if not 0 <= inner < limit:
            raise fault(kind, f"{where}: reference {inner} does not point backwards")
        return Ref(inner)
    if tag == "float" and inner in ("inf", "-inf"):
        return float(inner)
    if tag == "float" and isinstance(inner, int | float) and not isinstance(inner, bool):
        return float(inner)
    if tag == "dtype" and isinstance(inner, str) and inner in DTYPES:
        return DTypeName(inner)
    if tag == "memory_format" and isinstance(inner, str) and inner in MEMORY_FORMATS:
        return MemoryFormat(inner)
    raise fault(kind, f"{where}: an argument is none of the allowed forms")


def _outputs(kind: GraphKind, value: Any, limit: int, state: Set[str]) -> tuple[Ref, tuple[tuple[str, Ref], ...]]:
    outputs = _object(kind, value, {"losses", "state"}, "outputs")
    losses = _arg(kind, outputs["losses"], "outputs", limit)
    new_state = outputs["state"]
    if not isinstance(losses, Ref) or not isinstance(new_state, dict):
        raise fault(kind, "outputs must be a reference to the losses and an object of new state")
    if set(new_state) - state or (new_state and kind == "eval"):
        raise fault(kind, "returns new state that it may not change")
    pairs = [(name, _arg(kind, ref, "outputs", limit)) for name, ref in sorted(new_state.items())]
    checked = tuple((name, ref) for name, ref in pairs if isinstance(ref, Ref))
    if len(checked) != len(pairs):
        raise fault(kind, "new state must be references")
    return losses, checked


def _object(kind: GraphKind, value: Any, keys: set[str], where: str) -> dict[str, Any]:
    if not isinstance(value, dict) or set(value) != keys:
        raise fault(kind, f"{where} must have exactly the keys {', '.join(sorted(keys))}")
    return value


def _list(kind: GraphKind, value: Any, where: str, limit: int) -> list[Any]:
    if not isinstance(value, list) or len(value) > limit:
        raise fault(kind, f"{where}: expected a list of at most {limit}")
    return value
