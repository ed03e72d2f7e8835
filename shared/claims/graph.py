"""The tensor graph of a training program as data: values, encoding, check by allow-list. Runs nothing.

Canonical JSON of one graph:

    {"format": "gput-graph/1", "kind": "train",
     "inputs":  [["parameter", "wte.weight"], ["state", "bn.running_mean"], ["record", "tokens"]],
     "nodes":   [{"op": "aten.linear.default", "args": [{"ref": 0}, {"ref": 1}, null], "kwargs": {}}],
     "outputs": {"losses": {"ref": 7}, "state": {"bn.num_batches_tracked": {"ref": 9}}}}

Values are numbered: inputs first, then one per node; a reference may only point backwards. An argument is null, a truth
value, an integer, a short word, {"float": x} (JSON alone cannot tell 1.0 from 1), {"ref": n}, {"dtype": name},
{"memory_format": name}, or a list of these. There are no devices, paths, expressions or sample values.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

from shared.canonical import json_bytes
from shared.claims.operators import ALLOWED, RANDOM, SIZE_ARITHMETIC, STATE_WRITERS, TENSOR_PLACES, TUPLE_RESULT
from shared.errors import InvalidProgram

GRAPH_FORMAT: Final = "gput-graph/1"
GraphKind = Literal["train", "eval"]
InputKind = Literal["parameter", "state", "record"]


@dataclass(frozen=True, slots=True)
class Ref:
    """Value number `index`: inputs first, then nodes."""

    index: int


@dataclass(frozen=True, slots=True)
class DTypeName:
    """A dtype by its own name, e.g. `int64`."""

    name: str


@dataclass(frozen=True, slots=True)
class MemoryFormat:
    """`contiguous_format` or `preserve_format`."""

    name: str


Arg = None | bool | int | float | str | Ref | DTypeName | MemoryFormat | tuple["Arg", ...]


@dataclass(frozen=True, slots=True)
class Node:
    """One operator call. Its result is one value (a tensor, an integer, or a tuple to be taken apart by getitem)."""

    op: str
    args: tuple[Arg, ...]
    kwargs: tuple[tuple[str, Arg], ...] = ()


@dataclass(frozen=True, slots=True)
class Graph:
    """A checked or a freshly built graph. `state_outputs`: new values of declared state, by name, sorted."""

    kind: GraphKind
    inputs: tuple[tuple[InputKind, str], ...]
    nodes: tuple[Node, ...]
    losses: Ref
    state_outputs: tuple[tuple[str, Ref], ...] = ()

    @property
    def operators(self) -> frozenset[str]:
        """Names of all operators called."""
        return frozenset(node.op for node in self.nodes)

    @property
    def draws(self) -> bool:
        """Whether any node draws random numbers."""
        return any(_draws(node) for node in self.nodes)

    @property
    def changed_state(self) -> str:
        """The name of declared state that running the graph changes: computed anew, or updated by an operator; "" if there is none."""
        if self.state_outputs:
            return self.state_outputs[0][0]
        for node in self.nodes:
            writer = STATE_WRITERS.get(node.op)
            running = _by_place(node, writer[0]) if writer is not None and _by_place(node, writer[2]) else None
            if isinstance(running, Ref):
                return self.inputs[running.index][1]
        return ""


def references(arg: Arg) -> Iterator[Ref]:
    """Every reference inside one argument."""
    if isinstance(arg, Ref):
        yield arg
    elif isinstance(arg, tuple):
        for item in arg:
            yield from references(item)


def node_references(node: Node) -> Iterator[Ref]:
    """Every reference of one node, positional then keyword."""
    yield from references(node.args)
    for _, value in node.kwargs:
        yield from references(value)


def encode_graph(graph: Graph) -> bytes:
    """Canonical JSON of `graph`; the same graph always gives the same bytes."""
    return json_bytes(
        {
            "format": GRAPH_FORMAT,
            "kind": graph.kind,
            "inputs": [list(pair) for pair in graph.inputs],
            "nodes": [
                {"op": n.op, "args": [_encode(a) for a in n.args], "kwargs": {k: _encode(v) for k, v in n.kwargs}}
                for n in graph.nodes
            ],
            "outputs": {"losses": _encode(graph.losses), "state": {k: _encode(v) for k, v in graph.state_outputs}},
        }
    )


def check_graph(graph: Graph) -> None:
    """Allow-list and value kinds; also run by the builder on what it made, so that both ends refuse alike.

    Raises:
        InvalidProgram: an operator is not allowed, or a value is used as what it is not.
    """
    kinds = ["tensor"] * len(graph.inputs)
    for position, node in enumerate(graph.nodes):
        if node.op not in ALLOWED:
            raise InvalidProgram(
                f"The {graph.kind} graph calls {node.op!r} at node {position}, which is not an allowed operator",
                code="operator-not-allowed",
                remedy="Write the model with other operators; `gput program operators` lists the allowed ones.",
            )
        kinds.append(_result_kind(graph.kind, position, node, kinds))
        _check_writes_and_draws(graph, position, node)
    for what, ref in (("losses", graph.losses), *graph.state_outputs):
        if kinds[ref.index] != "tensor":
            raise fault(graph.kind, f"returns as {what} something that is not a tensor")


def _result_kind(kind: GraphKind, position: int, node: Node, kinds: list[str]) -> str:
    """`tensor`, `int` or `tuple`; refuses arguments of the wrong kind."""
    given = [kinds[ref.index] for ref in node_references(node)]
    if node.op in SIZE_ARITHMETIC:
        plain = all(isinstance(a, Ref) or (isinstance(a, int) and not isinstance(a, bool)) for a in node.args)
        if len(node.args) != 2 or node.kwargs or not plain or set(given) - {"int"}:
            raise fault(kind, f"node {position}: {node.op} takes two integers")
        return "int"
    if node.op in {"aten.sym_size.int", "operator.getitem"}:
        wanted = "tensor" if node.op == "aten.sym_size.int" else "tuple"
        if len(node.args) != 2 or node.kwargs or given != [wanted] or type(node.args[1]) is not int:
            raise fault(kind, f"node {position}: {node.op} takes a {wanted} and an integer")
        return "int" if wanted == "tensor" else "tensor"
    if "tuple" in given:
        raise fault(kind, f"node {position}: {node.op} is given a tuple of tensors; take it apart first")
    if not given and ALLOWED[node.op] != "creation":
        raise fault(kind, f"node {position}: {node.op} takes no value at all")
    _check_places(kind, position, node, kinds)
    return "tuple" if node.op in TUPLE_RESULT else "tensor"


def _check_places(kind: GraphKind, position: int, node: Node, kinds: list[str]) -> None:
    for where, arg in (*enumerate(node.args), *node.kwargs):
        if where not in TENSOR_PLACES[node.op] and any(kinds[ref.index] == "tensor" for ref in references(arg)):
            raise InvalidProgram(
                f"The {kind} graph's node {position} ({node.op}) is given a tensor as its argument {where}, which takes a number: "
                "no size, and no option of an operator, may follow from values",
                remedy="State the number, or take it from a tensor's shape; values are worked with by operators over tensors.",
            )


def _check_writes_and_draws(graph: Graph, position: int, node: Node) -> None:
    writer = STATE_WRITERS.get(node.op)
    if writer is not None:
        running = [_by_place(node, writer[0]), _by_place(node, writer[1])]
        declared = all(
            isinstance(a, Ref) and a.index < len(graph.inputs) and graph.inputs[a.index][0] == "state" for a in running
        )
        uses_batch = _by_place(node, writer[2])
        if not isinstance(uses_batch, bool) or node.kwargs:
            raise fault(graph.kind, f"node {position}: {node.op} must say plainly whether it uses batch statistics")
        if uses_batch and running != [None, None] and not (declared and graph.kind == "train"):
            raise fault(graph.kind, f"node {position}: {node.op} would update what is not the train graph's state")
    if graph.kind == "eval" and _draws(node):
        raise fault("eval", f"node {position}: {node.op} draws random numbers; evaluation must not")


def _draws(node: Node) -> bool:
    places = RANDOM.get(node.op)
    if places is None:
        return False
    probability, train = places
    value = argument(node, *probability)
    if isinstance(value, Ref):
        return True
    active = train is None or argument(node, *train) is not False
    return active and value not in (None, 0, 0.0)


def argument(node: Node, position: int, name: str) -> Arg:
    """An argument that may be given by place or by name: one that is looked for in one of them only hides in the other."""
    return dict(node.kwargs).get(name, _by_place(node, position))


def _by_place(node: Node, position: int) -> Arg:
    return node.args[position] if position < len(node.args) else None


def _encode(arg: Arg) -> Any:
    if isinstance(arg, tuple):
        return [_encode(item) for item in arg]
    if isinstance(arg, Ref):
        return {"ref": arg.index}
    if isinstance(arg, DTypeName):
        return {"dtype": arg.name}
    if isinstance(arg, MemoryFormat):
        return {"memory_format": arg.name}
    if isinstance(arg, float):
        return {"float": arg if math.isfinite(arg) else str(arg)}
    return arg


def fault(kind: GraphKind, what: str) -> InvalidProgram:
    """The refusal of one graph, in one sentence."""
    return InvalidProgram(f"The {kind} graph {what}")
