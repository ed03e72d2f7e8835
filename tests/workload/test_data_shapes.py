"""No size in a program follows from records: forms that would make one are refused, and what PyTorch takes for a mask is known for one."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

from gpu_agent.workload.executor import DTYPES, Executor, resolve
from gpu_agent.workload.loader import load_program
from shared.claims.archive import open_archive
from shared.claims.data_shapes import MASKS, check_shapes
from shared.claims.graph import Arg, DTypeName, Graph, InputKind, Node, Ref, encode_graph
from shared.claims.graph_parser import parse_graph
from shared.claims.operators import ALLOWED, TUPLE_RESULT
from shared.errors import InvalidProgram
from tests.workload.workload_helpers import repack

Built = tuple[bytes, bytes | None]
DECLARED: dict[InputKind, dict[str, str]] = {
    "parameter": {"w": "float32"}, "state": {"seen": "bool"}, "record": {"x": "int64", "byte": "uint8", "f": "float32"},
}  # fmt: skip
W, SEEN, X, BYTE, F = (Ref(number) for number in range(5))
INPUTS = (("parameter", "w"), ("state", "seen"), ("record", "x"), ("record", "byte"), ("record", "f"))
OUT = Ref(len(INPUTS))
"""The first node's result."""
INDEX = "aten.index.Tensor"


def graph(*nodes: Node) -> Graph:
    return Graph("train", INPUTS, nodes, Ref(len(INPUTS) + len(nodes) - 1))


def parsed(*nodes: Node) -> Graph:
    return parse_graph(encode_graph(graph(*nodes)), "train", DECLARED)


def refusal(*nodes: Node) -> str:
    with pytest.raises(InvalidProgram) as refused:
        parsed(*nodes)
    assert refused.value.remedy
    return refused.value.detail


@pytest.mark.parametrize(
    "node",
    [
        Node("aten.one_hot.default", (X,)),
        Node("aten.one_hot.default", (X, -1)),
        Node("aten.one_hot.default", (X,), (("num_classes", -1),)),
        Node("aten.one_hot.default", (X, 0)),
        Node("aten.one_hot.default", (X, True)),
        Node("aten.one_hot.default", (X, None)),
    ],
    ids=lambda node: str(node.args[1:] or node.kwargs),
)
def test_one_hot_without_a_number_of_classes_is_refused(node: Node) -> None:
    said = refusal(node)
    assert "node 0 (aten.one_hot.default) does not state its number of classes" in said


def test_one_hot_of_as_many_classes_as_sizes_come_to_is_refused() -> None:
    """They may come to -1."""
    sizes = (Node("aten.sym_size.int", (X, 0)), Node("operator.sub", (OUT, Ref(OUT.index))))
    assert "number of classes" in refusal(*sizes, Node("aten.one_hot.default", (X, Ref(OUT.index + 1))))


@pytest.mark.parametrize(
    "node", [Node("aten.one_hot.default", (X, 5)), Node("aten.one_hot.default", (X,), (("num_classes", 5),))]
)
def test_one_hot_of_so_many_classes_is_a_program(node: Node) -> None:
    assert parsed(node).nodes == (node,)


@pytest.mark.parametrize("indices", [((SEEN,),), ((BYTE,),), ((None, BYTE),), ((X, SEEN),)], ids=str)
def test_an_index_that_may_be_a_mask_is_refused(indices: tuple[Arg, ...]) -> None:
    assert f"node 0 ({INDEX}) selects by a mask" in refusal(Node(INDEX, (W, *indices)))
    assert "selects by a mask" in refusal(Node(INDEX, (W,), (("indices", indices[0]),)))


MASKING = [
    Node("aten.gt.Scalar", (F, 0)),
    Node("aten.logical_not.default", (X,)),
    Node("aten.isnan.default", (F,)),
    Node("aten.any.dim", (X, 0)),
    Node("aten.to.dtype", (X, DTypeName("bool"))),
    Node("aten.to.dtype", (X,), (("dtype", DTypeName("uint8")),)),
    Node("aten.to.dtype", (X, 11)),  # bool, as PyTorch numbers dtypes
    Node("aten.zeros_like.default", (X,), (("dtype", 0),)),
    Node("aten.type_as.default", (X, BYTE)),
    Node("aten.full.default", ((3,), True)),
    Node("aten.full.default", ((3,),), (("fill_value", True),)),
    Node("aten.ones.default", ((3,),), (("dtype", DTypeName("bool")),)),
    Node("aten.zeros_like.default", (SEEN,)),
    Node("aten.where.self", (SEEN, BYTE, BYTE)),
    Node("aten.where.Scalar", (SEEN, True, False)),
    Node("aten.add.Tensor", (X, BYTE)),
    Node("aten.bitwise_not.default", (BYTE,)),
    Node("aten.view.default", (BYTE, (-1,))),
    Node("aten.cat.default", ((BYTE, BYTE), 0)),
    Node("aten.gather.default", (BYTE, 0, X)),
    Node(INDEX, (BYTE, (X,))),
]


@pytest.mark.parametrize("node", MASKING, ids=lambda node: node.op)
def test_what_an_operator_may_make_a_mask_of_selects_nothing(node: Node) -> None:
    assert "selects by a mask" in refusal(node, Node(INDEX, (W, (OUT,))))


NUMBERS = [
    Node("aten.argmax.default", (F, -1)),
    Node("aten.to.dtype", (BYTE, DTypeName("int64"))),
    Node("aten.sum.dim_IntList", (SEEN, (0,))),
    Node("aten.where.self", (SEEN, X, X)),
    Node("aten.where.ScalarOther", (SEEN, X, 0)),
    Node("aten.where.Scalar", (SEEN, 1, 0)),
    Node("aten.masked_fill.Scalar", (X, SEEN, 0)),
    Node("aten.one_hot.default", (BYTE, 256)),
    Node("aten.type_as.default", (BYTE, X)),
    Node("aten.remainder.Scalar", (X, 7)),
]


@pytest.mark.parametrize("node", NUMBERS, ids=lambda node: node.op)
def test_numbers_select_as_ever(node: Node) -> None:
    assert len(parsed(node, Node(INDEX, (W, (OUT, X, None)))).nodes) == 2


def test_places_of_the_largest_select_and_the_largest_themselves_may_be_a_mask() -> None:
    size = Node("aten.sym_size.int", (BYTE, 0))
    parsed(size, Node("aten.arange.default", (OUT,)), Node(INDEX, (W, (Ref(OUT.index + 1),))))
    for op, part, fits in itertools.product(("aten.topk.default", "aten.max.dim"), (0, 1, -1, -2), (True, False)):
        source = X if fits else BYTE
        nodes = (Node(op, (source, 1)), Node("operator.getitem", (OUT, part)), Node(INDEX, (W, (Ref(OUT.index + 1),))))
        if fits or part in (1, -1):
            parsed(*nodes)
        else:
            assert "selects by a mask" in refusal(*nodes)


def test_sparse_gradients_beside_padding_are_refused() -> None:
    embedding = "aten.embedding.default"
    for node in (
        Node(embedding, (W, X, 0, False, True)),
        Node(embedding, (W, X, 0, False, 1)),
        Node(embedding, (W, X), (("padding_idx", 3), ("sparse", True))),
    ):
        assert "sparse gradients and padding" in refusal(node)
    for node in (
        Node(embedding, (W, X, 0)),
        Node(embedding, (W, X, 0, True, False)),
        Node(embedding, (W, X, -1, False, True)),
        Node(embedding, (W, X), (("sparse", True),)),
    ):
        parsed(node)


def test_an_archive_is_held_to_it_by_everybody_who_opens_one(noisy_classifier: Built) -> None:
    fields = {field.name: field.dtype for field in open_archive(noisy_classifier[0]).manifest.records.fields}
    labels = next(name for name, dtype in fields.items() if dtype == "int64")

    def widen(manifest: dict[str, Any], train: dict[str, Any], _: dict[str, Any]) -> None:
        label = train["inputs"].index(["record", labels])
        train["nodes"].append({"op": "aten.one_hot.default", "args": [{"ref": label}, -1], "kwargs": {}})
        manifest["operators"] = sorted({*manifest["operators"], "aten.one_hot.default"})

    for opened in (open_archive, load_program):
        with pytest.raises(InvalidProgram, match="number of classes"):
            opened(repack(noisy_classifier[0], widen))


def test_a_mask_is_refused_where_it_comes_to_select_too() -> None:
    """The graph's check knows dtypes by name only; the executor sees them."""
    built = Executor(graph(Node(INDEX, (W, (X,)))), "cpu")
    values = {
        "w": torch.arange(4.0),
        "seen": torch.tensor([True]),
        "byte": torch.zeros(1, dtype=torch.uint8),
        "f": torch.ones(1),
    }

    def run(index: Tensor) -> Tensor:
        inputs = {"parameter": values, "state": values, "record": values | {"x": index}}
        return built(inputs)[0]  # type: ignore[arg-type]  # names of all kinds in one

    assert run(torch.tensor([3, 1])).tolist() == [3.0, 1.0]
    for mask in (torch.tensor([True, False, False, True]), torch.tensor([1, 0, 0, 1], dtype=torch.uint8)):
        with pytest.raises(InvalidProgram, match="TypeError"):
            run(mask)


# ------------------------------------------------------------------ against PyTorch itself


def _made(name: str, dtype: str) -> Tensor:
    return torch.ones((), dtype=DTYPES[dtype]) if name == "c" else torch.ones((2, 2), dtype=DTYPES[dtype])


def _calls() -> list[tuple[str, tuple[Arg, ...]]]:
    """Operators with arguments that they take of some dtypes: two tensors of two dimensions, one of none."""
    a, b, c = Ref(0), Ref(1), Ref(2)
    few: list[tuple[Arg, ...]] = [
        (a,), (a, b), (a, c), (c, a), (a, b, c), (b, a, a), (a, 0), (a, 1, b), (a, 1, 0), (a, 1, True), (a, True), (a, b, 1),
        (a, True, False), (True, a), (a, (0,)), (a, (0,), 1), (a, (2, 2)), (a, 0, True), ((a, b),), ((a, c), 0), ((2, 2),), ((2, 2), True),
        ((2, 2), 1), (3,), (a, (b,)), (a, 0, b), (a, 2), (a, a, b), (True,), (a, (2, 2), True), (a, 1, 0, 1), (a, 0, 0), (a, b, 1, 1),
    ]  # fmt: skip
    usual = [
        ("int64",) * 3,
        ("float32",) * 3,
        ("bool",) * 3,
        ("bool", "int64", "int64"),
        ("float32", "int64", "float32"),
    ]
    worlds = [[_made(name, dtype) for name, dtype in zip("abc", dtypes, strict=True)] for dtypes in usual]
    return [
        (op, args)
        for op, args in itertools.product(ALLOWED, few)
        if op.startswith("aten.") and any(_results(op, args, tensors) for tensors in worlds)
    ]


def _results(op: str, args: tuple[Arg, ...], tensors: list[Tensor]) -> list[Tensor]:
    def filled(arg: Arg) -> Any:
        if isinstance(arg, tuple):
            return [filled(one) for one in arg]
        return tensors[arg.index] if isinstance(arg, Ref) else arg

    try:
        found = resolve(op)(*map(filled, args))
    except Exception:  # the operator does not take these
        return []
    return [one for one in (found if isinstance(found, tuple | list) else (found,)) if isinstance(one, Tensor)]


def _is_refused(made: Graph, declared: dict[InputKind, dict[str, str]]) -> bool:
    try:
        check_shapes(made, declared)
    except InvalidProgram:
        return True
    return False


@pytest.mark.filterwarnings("ignore")
def test_whatever_pytorch_makes_a_mask_of_is_taken_for_one() -> None:
    """Every operator of the list, over dtypes that promote to one another, of tensors with dimensions and without."""
    seen, missed = set[str](), list[str]()
    names, masks, calls = ("a", "b", "c"), {DTYPES[name] for name in MASKS}, _calls()
    for dtypes in itertools.product(("bool", "uint8", "int64", "float32"), repeat=3):
        declared: dict[InputKind, dict[str, str]] = {"record": dict(zip(names, dtypes, strict=True))}
        inputs: tuple[tuple[InputKind, str], ...] = tuple(("record", name) for name in names)
        tensors = [_made(name, dtype) for name, dtype in zip(names, dtypes, strict=True)]
        for op, args in calls:
            for number, result in enumerate(_results(op, args, tensors)):
                if result.dtype not in masks:
                    continue
                seen.add(op)
                take = [Node("operator.getitem", (Ref(3), number))] if op in TUPLE_RESULT else []
                nodes = (Node(op, args), *take, Node(INDEX, (Ref(0), (Ref(3 + len(take)),))))
                if not _is_refused(Graph("train", inputs, nodes, Ref(3)), declared):
                    missed.append(f"{op}{args} over {dtypes}")
    assert missed == []
    assert len(seen) > 100
