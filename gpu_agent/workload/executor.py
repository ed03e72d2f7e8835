"""Turns a checked graph into a callable over plain ATen calls. Never compiles text, never looks up a name outside the allow-list.

The graph is interpreted: one prepared call per node over a list of value slots. That costs about a microsecond per node,
less than the `nn.Module` calls that plain PyTorch makes for the same operators, and needs no generated code.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from gpu_agent.workload.guarded import GUARDED
from shared.claims.graph import Arg, DTypeName, Graph, InputKind, MemoryFormat, Node, Ref, fault, node_references
from shared.claims.operators import ALLOWED, CREATION
from shared.errors import InvalidProgram

DTYPES: Final[dict[str, torch.dtype]] = {
    "bool": torch.bool,
    "uint8": torch.uint8,
    "uint16": torch.uint16,
    "int32": torch.int32,
    "int64": torch.int64,
    "bfloat16": torch.bfloat16,
    "float32": torch.float32,
    "float64": torch.float64,
}
_MEMORY_FORMATS: Final = {
    "contiguous_format": torch.contiguous_format,
    "preserve_format": torch.preserve_format,
}
_MAX_SIZE: Final = 2**48


def _sym_size(tensor: Tensor, dim: int) -> int:
    return tensor.shape[dim]


def _bounded(function: Callable[[int, int], int]) -> Callable[[int, int], int]:
    """Integer arithmetic that cannot grow: repeated squaring of a size would otherwise fill memory in 60 nodes."""

    def call(left: int, right: int) -> int:
        result = function(left, right)
        if not -_MAX_SIZE < result < _MAX_SIZE:
            raise OverflowError("size out of range")
        return result

    return call


_PYTHON_OPERATORS: Final[dict[str, Callable[..., Any]]] = {
    "aten.sym_size.int": _sym_size,
    "operator.getitem": operator.getitem,
    "operator.add": _bounded(operator.add),
    "operator.sub": _bounded(operator.sub),
    "operator.mul": _bounded(operator.mul),
    "operator.floordiv": _bounded(operator.floordiv),
}

# The same operators by PyTorch's own short bindings: an OpOverload parses its arguments by schema, 1-2 us more per call,
# which is the difference between 1.02 and 1.00 of plain PyTorch's time at 15 ms a step.
_DIRECT: Final[dict[str, Callable[..., Any]]] = {
    "aten.add.Tensor": torch.add,
    "aten.sub.Tensor": torch.sub,
    "aten.mul.Tensor": torch.mul,
    "aten.linear.default": torch.nn.functional.linear,
    "aten.matmul.default": torch.matmul,
    "aten.view.default": torch.Tensor.view,
    "aten.reshape.default": torch.reshape,
    "aten.transpose.int": torch.transpose,
    "aten.embedding.default": torch.embedding,
    "aten.layer_norm.default": torch.layer_norm,
    "aten.batch_norm.default": torch.batch_norm,
    "aten.gelu.default": torch.nn.functional.gelu,
    "aten.relu.default": torch.relu,
    "aten.dropout.default": torch.dropout,
    "aten.scaled_dot_product_attention.default": torch.nn.functional.scaled_dot_product_attention,
}


def _quick(node: Node, function: Callable[..., Any]) -> Callable[..., Any]:
    """The guarded form; else the short binding, where its overloads by argument type cannot mean another operator (`view` of a dtype)."""
    if node.op in GUARDED:
        return GUARDED[node.op]
    named = any(isinstance(arg, DTypeName | MemoryFormat | str) for arg in node.args)
    return function if named else _DIRECT.get(node.op, function)


def resolve(name: str) -> Callable[..., Any]:
    """The callable of an allowed operator.

    Raises:
        InvalidProgram: the name is not on the allow-list, or this PyTorch has no such operator.
    """
    if name not in ALLOWED:
        raise InvalidProgram(f"Operator {name!r} is not allowed", code="operator-not-allowed")
    if name in _PYTHON_OPERATORS:
        return _PYTHON_OPERATORS[name]
    _, packet, overload = name.split(".")
    try:
        function: Callable[..., Any] = getattr(getattr(torch.ops.aten, packet), overload)
    except AttributeError as error:
        raise InvalidProgram(f"Operator {name!r} does not exist in PyTorch {torch.__version__}") from error
    return function


@dataclass(frozen=True, slots=True)
class _Call:
    """One prepared node: `args`/`kwargs` are constants except at the listed places, which are filled from value slots."""

    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    slots: tuple[tuple[int, int], ...]
    lists: tuple[tuple[int, Arg], ...]
    kwargs: dict[str, Any]
    keyword_refs: tuple[tuple[str, Arg], ...]
    dead: tuple[int, ...]


class Executor:
    """One graph, ready to run on one device. Holds no data and no weights.

    Raises:
        InvalidProgram: an operator does not take the arguments that the graph gives it.
    """

    def __init__(self, graph: Graph, device: str) -> None:
        self.graph = graph
        self.inputs: tuple[tuple[InputKind, str], ...] = graph.inputs
        self._device = torch.device(device)
        self._outputs = (graph.losses, *(ref for _, ref in graph.state_outputs))
        self._width = len(graph.inputs) + len(graph.nodes)
        dead = self._last_uses()
        self._calls = tuple(self._prepare(node, dead.get(i, ())) for i, node in enumerate(graph.nodes))

    def __call__(self, sources: Mapping[InputKind, Mapping[str, Tensor]]) -> list[Tensor]:
        """Run the graph: losses first, then new state values in the order of `graph.state_outputs`.

        Raises:
            InvalidProgram: an operator failed. PyTorch's own text is withheld, for it can quote values of records.
        """
        values: list[Any] = [sources[kind][name] for kind, name in self.inputs]
        values.extend([None] * len(self._calls))
        position = len(self.inputs)
        for call in self._calls:
            args = list(call.args)
            for place, slot in call.slots:
                args[place] = values[slot]
            for place, template in call.lists:
                args[place] = _fill(template, values)
            kwargs = call.kwargs
            if call.keyword_refs:
                kwargs = kwargs | {key: _fill(template, values) for key, template in call.keyword_refs}
            try:
                values[position] = call.function(*args, **kwargs)
            except Exception as error:
                raise self._failure(position, call.name, error) from None
            for slot in call.dead:
                values[slot] = None
            position += 1
        return [values[ref.index] for ref in self._outputs]

    def _failure(self, position: int, name: str, error: Exception) -> InvalidProgram:
        memory = isinstance(error, MemoryError) or "memory" in str(error)
        return InvalidProgram(
            f"The {self.graph.kind} graph failed at node {position - len(self.inputs)} ({name}): "
            + ("not enough memory" if memory else type(error).__name__),
            code="program-out-of-memory" if memory else "program-failed",
            remedy="Run the program on a sample of its own records with `gput program build` to see why.",
        )

    def _last_uses(self) -> dict[int, tuple[int, ...]]:
        """Node position -> value slots that nobody reads afterwards; frees activations as plain Python scoping does."""
        last: dict[int, int] = {}
        first = len(self.graph.inputs)
        for position, node in enumerate(self.graph.nodes):
            last[first + position] = position
            for ref in node_references(node):
                last[ref.index] = position
        kept = {ref.index for ref in self._outputs}
        result: dict[int, list[int]] = {}
        for slot, position in last.items():
            if slot not in kept:
                result.setdefault(position, []).append(slot)
        return {position: tuple(slots) for position, slots in result.items()}

    def _prepare(self, node: Node, dead: tuple[int, ...]) -> _Call:
        function = resolve(node.op)
        args = tuple(_constant(arg) for arg in node.args)
        slots = tuple((place, arg.index) for place, arg in enumerate(node.args) if isinstance(arg, Ref))
        lists = tuple((place, arg) for place, arg in enumerate(node.args) if isinstance(arg, tuple) and _has_ref(arg))
        kwargs = {key: _constant(value) for key, value in node.kwargs if not _has_ref(value)}
        keyword_refs = tuple((key, value) for key, value in node.kwargs if _has_ref(value))
        if node.op in CREATION:
            kwargs["device"] = self._device
        self._check_signature(node, function)
        return _Call(node.op, _quick(node, function), args, slots, lists, kwargs, keyword_refs, dead)

    def _check_signature(self, node: Node, function: Callable[..., Any]) -> None:
        schema = getattr(function, "_schema", None)
        if schema is None:
            return
        positional = [a for a in schema.arguments if not a.kwarg_only]
        names = {a.name for a in schema.arguments}
        given = {a.name for a in positional[: len(node.args)]} | {key for key, _ in node.kwargs}
        missing = [a.name for a in schema.arguments if not a.has_default_value() and a.name not in given]
        if len(node.args) > len(positional) or {key for key, _ in node.kwargs} - names or missing:
            raise fault(self.graph.kind, f"gives {node.op} arguments that it does not take")


def _constant(arg: Arg) -> Any:
    if isinstance(arg, DTypeName):
        return DTYPES[arg.name]
    if isinstance(arg, MemoryFormat):
        return _MEMORY_FORMATS[arg.name]
    if isinstance(arg, tuple):
        return [_constant(item) for item in arg]
    return None if isinstance(arg, Ref) else arg


def _has_ref(arg: Arg) -> bool:
    return isinstance(arg, Ref) or (isinstance(arg, tuple) and any(_has_ref(item) for item in arg))


def _fill(template: Arg, values: list[Any]) -> Any:
    if isinstance(template, Ref):
        return values[template.index]
    if isinstance(template, tuple):
        return [_fill(item, values) for item in template]
    return _constant(template)
