"""A graph's values while it is written: inputs are 0, 1, …, nodes -1, -2, …; and how they are numbered for good. Knows no PyTorch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shared.claims.graph import Arg, Graph, GraphKind, InputKind, Node, Ref, node_references
from shared.claims.operators import STATE_WRITERS


def read_by(node: Node) -> set[int]:
    """The values that a node reads."""
    return {ref.index for ref in node_references(node)}


def pruned(
    kind: GraphKind, inputs: Sequence[tuple[InputKind, str]], nodes: Sequence[Node], losses: int, new_state: Mapping[str, int]
) -> Graph:  # fmt: skip
    """Drop what the outputs do not need (but keep writers of state), and number values for good."""
    needed = {losses, *new_state.values()}
    keep: list[int] = []
    for position in reversed(range(len(nodes))):
        node = nodes[position]
        if -1 - position in needed or (node.op in STATE_WRITERS and kind == "train"):
            keep.append(position)
            needed |= read_by(node)
    keep.reverse()
    used = [i for i in range(len(inputs)) if i in needed]
    number = {value: place for place, value in enumerate(used)}
    number |= {-1 - position: len(used) + place for place, position in enumerate(keep)}
    state = tuple((name, Ref(number[value])) for name, value in sorted(new_state.items()))
    return Graph(
        kind, tuple(inputs[i] for i in used), tuple(_renumbered(nodes[position], number) for position in keep),
        Ref(number[losses]), state,
    )  # fmt: skip


def _renumbered(node: Node, number: Mapping[int, int]) -> Node:
    return Node(
        node.op,
        tuple(_renumber(arg, number) for arg in node.args),
        tuple((key, _renumber(value, number)) for key, value in node.kwargs),
    )


def _renumber(arg: Arg, number: Mapping[int, int]) -> Arg:
    if isinstance(arg, Ref):
        return Ref(number[arg.index])
    return tuple(_renumber(item, number) for item in arg) if isinstance(arg, tuple) else arg
