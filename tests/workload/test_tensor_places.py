"""A tensor stands only where an operator takes tensors: PyTorch would take one of one integer for a size, too, and so a record's value."""

from __future__ import annotations

from typing import Any

import pytest

from gpu_agent.workload.executor import resolve
from gpu_agent.workload.loader import load_program
from shared.claims.archive import open_archive
from shared.claims.graph import Arg, Graph, Node, Ref, check_graph
from shared.claims.operators import ALLOWED, TENSOR_PLACES
from shared.errors import InvalidProgram
from tests.workload.workload_helpers import Built, repack

X, SIZE, MADE = Ref(0), Ref(1), Ref(2)


def graph(node: Node) -> Graph:
    """Of one node that is given a record's tensor, X, and what follows from its shape, SIZE."""
    size = Node("aten.sym_size.int", (X, 0))
    return Graph("train", (("record", "x"),), (size, node), MADE)


def arguments(op: str) -> list[Any]:
    """As this PyTorch has them; none of what is no ATen operator."""
    schema = getattr(resolve(op), "_schema", None)
    return [] if schema is None else list(schema.arguments)


def test_the_table_says_what_pytorchs_schemas_say() -> None:
    for op in ALLOWED:
        takes = [(place, one) for place, one in enumerate(arguments(op)) if "Tensor" in str(one.type)]
        told = {where for place, one in takes for where in ((one.name,) if one.kwarg_only else (place, one.name))}
        assert told == TENSOR_PLACES[op] or not arguments(op), op
    assert set(TENSOR_PLACES) == set(ALLOWED)


def _given(op: str, place: int, arg: Arg) -> list[Node]:
    """Calls of an operator whose argument at that place is `arg`, which stands there by its place, where it may, and by its name."""
    taken = arguments(op)
    before = tuple(X if other in TENSOR_PLACES[op] else 1 for other in range(place))
    by_place = [] if taken[place].kwarg_only else [Node(op, (*before, arg))]
    leading = tuple(X for other in range(place) if other in TENSOR_PLACES[op])
    return [*by_place, Node(op, leading, ((taken[place].name, arg),))]


def test_no_operator_is_given_a_tensor_for_a_number() -> None:
    """Each argument of each operator that takes no tensor, bare and within a list; what follows from sizes may stand there."""
    tried = 0
    for op in ALLOWED:
        for place, argument in enumerate(arguments(op)):
            if "Tensor" in str(argument.type):
                continue
            for arg in (X, (X,), (1, X), (SIZE, X)):
                for node in _given(op, place, arg):
                    with pytest.raises(InvalidProgram, match=r"is given a tensor as its argument") as refused:
                        check_graph(graph(node))
                    assert refused.value.remedy
                    tried += 1
    assert tried > 1500


@pytest.mark.parametrize(
    "node",
    [
        Node("aten.zeros.default", ((SIZE,),)),
        Node("aten.expand.default", (X, (SIZE, -1))),
        Node("aten.slice.Tensor", (X, 0, 0, SIZE)),
        Node("aten.narrow.default", (X, 0, 0, SIZE)),
        Node("aten.mul.Tensor", (X, SIZE)),
        Node("aten.cat.default", ((X, X), 0)),
        Node("aten.einsum.default", ("i,i->i", (X, X))),
        Node("aten.index.Tensor", (X, (None, X))),
    ],
    ids=lambda node: node.op,
)
def test_sizes_stand_anywhere_and_lists_of_tensors_where_they_are_taken(node: Node) -> None:
    check_graph(graph(node))


def test_an_archive_whose_memory_would_be_as_large_as_a_record_says_is_opened_by_nobody(tiny_gpt2: Built) -> None:
    def as_large(manifest: dict[str, Any], train: dict[str, Any], _: dict[str, Any]) -> None:
        first = len(train["inputs"]) + len(train["nodes"])
        largest, zeros = "aten.max.default", "aten.zeros.default"
        tokens = train["inputs"].index(["record", "tokens"])
        train["nodes"] += [
            {"op": largest, "args": [{"ref": tokens}], "kwargs": {}},
            {"op": zeros, "args": [[{"ref": first}]], "kwargs": {}},
        ]
        manifest["operators"] = sorted({*manifest["operators"], largest, zeros})

    for opened in (open_archive, load_program):
        with pytest.raises(InvalidProgram, match=r"\(aten.zeros.default\) is given a tensor as its argument 0"):
            opened(repack(tiny_gpt2[0], as_large))
