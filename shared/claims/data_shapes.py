"""No shape in a program may follow from values, for values are records': sizes are seen from outside. Knows names and dtypes; runs nothing.

How much memory a training takes is seen by whoever runs the machine, and an agent's metrics tell it anybody. So where an operator of the
list has a form whose result, or gradient, is as large as values make it, that form is refused (that a tensor stands where an operator
takes a number is refused before: `shared.claims.graph`):

    one_hot         without a number of classes: as wide as the largest value
    index           by a mask (bool, or uint8, which PyTorch takes for one): as long as the mask has ones
    embedding       with sparse gradients and padding: as long as there are indexes beside the padding
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from shared.claims.graph import DTypeName, Graph, InputKind, Node, Ref, argument, node_references, references
from shared.claims.operators import ALLOWED, CREATION, SIZES
from shared.errors import InvalidProgram

MASKS: Final = frozenset({"bool", "uint8"})
_MAKES_TRUTH: Final = frozenset(
    {name for name, group in ALLOWED.items() if group == "comparison" and ".bitwise_" not in name}
    | {"aten.all.default", "aten.all.dim", "aten.any.default", "aten.any.dim"}
)
_MAKES_NUMBERS: Final = frozenset({
    "aten.sum.default", "aten.sum.dim_IntList", "aten.prod.default", "aten.prod.dim_int", "aten.cumsum.default",
    "aten.argmax.default", "aten.argmin.default", "aten.one_hot.default",
})  # fmt: skip
"""Whatever they are given: truth values they count."""
_WITH_PLACES: Final = frozenset({"aten.max.dim", "aten.min.dim", "aten.topk.default", "aten.sort.default"})
"""They give (values, int64 indexes)."""
_DTYPE_AT: Final = {"aten.to.dtype": 1, "aten.softmax.int": 2, "aten.log_softmax.int": 2}
"""Where a dtype may stand among the arguments; elsewhere it has its name."""
_DTYPE_FROM: Final[dict[str, tuple[int, ...]]] = {
    "aten.where.self": (1, 2), "aten.where.ScalarOther": (1,), "aten.where.ScalarSelf": (2,), "aten.where.Scalar": (),
    "aten.masked_fill.Scalar": (0,), "aten.masked_fill.Tensor": (0,), "aten.embedding.default": (0,), "aten.gather.default": (0,),
    "aten.index_select.default": (0,), "aten.index.Tensor": (0,), "aten.take_along_dim.default": (0,), "aten.type_as.default": (1,),
}  # fmt: skip
"""Of which arguments' values the result has its dtype, where not all count."""


def check_shapes(graph: Graph, dtypes: Mapping[InputKind, Mapping[str, str]]) -> None:
    """Refuse what has a shape that follows from values.

    Args:
        dtypes: of every input that the manifest declares, by name.
    Raises:
        InvalidProgram: naming graph, node and remedy.
    """
    masks = [dtypes[kind][name] in MASKS for kind, name in graph.inputs]
    for position, node in enumerate(graph.nodes):
        if node.op == "aten.one_hot.default" and not _states_classes(node):
            raise _refusal(
                graph, position, node, "does not state its number of classes, and would be as wide as the largest value",
                "State it as a number: `one_hot(x, num_classes=10)`.",
            )  # fmt: skip
        if node.op == "aten.index.Tensor" and any(masks[ref.index] for ref in references(argument(node, 1, "indices"))):
            raise _refusal(
                graph, position, node, "selects by a mask, and its result would be as long as the mask has ones",
                "Use `torch.where`, or multiply by the mask. What is a number in truth, make one: `.to(torch.int64)`.",
            )  # fmt: skip
        if has_sparse_gradients(node) and argument(node, 2, "padding_idx") not in (None, -1):
            raise _refusal(
                graph, position, node, "has sparse gradients and padding; they would be as many as there are other indexes",
                "Leave `sparse=True` out.",
            )  # fmt: skip
        masks.append(_may_be_mask(graph, node, masks))


def has_sparse_gradients(node: Node) -> bool:
    """Whether it is an embedding that makes such. Without padding they are as many as there are indexes."""
    return node.op == "aten.embedding.default" and argument(node, 4, "sparse") not in (None, False)


def _states_classes(node: Node) -> bool:
    classes = argument(node, 1, "num_classes")
    # A reference would be an integer worked out from sizes, and that may come to be -1.
    return isinstance(classes, int) and not isinstance(classes, bool) and classes >= 1


def _may_be_mask(graph: Graph, node: Node, masks: Sequence[bool]) -> bool:
    """Whether a node's result may have a dtype in MASKS. In doubt it may: then somebody has to state the dtype."""
    given = (*node.args, *(value for _, value in node.kwargs))
    stated = argument(node, _DTYPE_AT.get(node.op, len(node.args)), "dtype")
    if stated is not None:
        return not isinstance(stated, DTypeName) or stated.name in MASKS  # PyTorch knows dtypes by numbers, too
    if node.op in _MAKES_TRUTH:
        return True
    if node.op in _MAKES_NUMBERS or node.op in SIZES or _is_places(graph, node):
        return False
    if node.op in CREATION | {"aten.where.Scalar"} and any(isinstance(arg, bool) for arg in given):
        return True  # filled with a truth value
    counted = node_references(node)
    if (places := _DTYPE_FROM.get(node.op)) is not None and len(node.args) > max(places, default=0):
        counted = references(tuple(node.args[place] for place in places))
    return any(masks[ref.index] for ref in counted)


def _is_places(graph: Graph, node: Node) -> bool:
    """Whether it is the second part of what an operator gave that gives places beside values."""
    if node.op != "operator.getitem" or not isinstance(source := node.args[0], Ref):
        return False
    made = source.index - len(graph.inputs)
    return made >= 0 and graph.nodes[made].op in _WITH_PLACES and node.args[1] in (1, -1)


def _refusal(graph: Graph, position: int, node: Node, what: str, remedy: str) -> InvalidProgram:
    return InvalidProgram(
        f"The {graph.kind} graph's node {position} ({node.op}) {what}: no size may follow from records", remedy=remedy
    )
