"""One `torch.export` of a user's model and loss into our graph form. Knows no manifest and no archive; runs at build time only.

The training IR of `torch.export` keeps the operators that plain PyTorch calls, so losses and speed stay those of the user's
own code. In-place operators on intermediate values are rewritten to their pure forms; BatchNorm's running statistics stay.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import torch
from torch import Tensor, fx, nn
from torch.export import Dim, ExportedProgram
from torch.export.graph_signature import InputKind as ExportKind

from gpu_agent.workload.executor import DTYPES
from gpu_agent.workload.in_place import COPIES, DETACH, dtype_of, is_changed, name_of, no_buffer, pure_form
from gpu_agent.workload.numbering import pruned, read_by
from gpu_agent.workload.source import ProgramSource
from gpu_agent.workload.user_code import quiet, told
from shared.claims.graph import (
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
    references,
)
from shared.claims.operators import ALIASING, ALLOWED, STATE_WRITERS
from shared.errors import InvalidProgram

MAX_BATCH: Final = 65536
_DTYPE_NAMES: Final = {dtype: name for name, dtype in DTYPES.items()}
_DROPPED_KWARGS: Final = frozenset({"device", "layout", "pin_memory"})
_CHECKS: Final = frozenset({
    "aten._assert_tensor_metadata.default", "aten._assert_scalar.default", "aten._assert_async.msg",
    "aten.sym_constrain_range.default", "aten.sym_constrain_range_for_size.default",
})  # fmt: skip


class _WithLoss(nn.Module):
    """Model and loss as one module whose inputs are the record fields in the schema's order."""

    def __init__(self, source: ProgramSource) -> None:
        super().__init__()
        self.model = source.model
        self._loss = source.loss
        self._names = [field.name for field in source.records.fields]

    def forward(self, *fields: Tensor) -> Tensor:
        return self._loss(self.model, dict(zip(self._names, fields, strict=True)))


class Exported:
    """One exported graph and the constants that the export lifted out of the user's code, by canonical name."""

    def __init__(self, graph: Graph, constants: dict[str, Tensor]) -> None:
        self.graph = graph
        self.constants = constants


def export_graph(
    source: ProgramSource, sample: Mapping[str, Tensor], kind: GraphKind, canonical: Mapping[str, tuple[InputKind, str]]
) -> Exported:
    """Export `source` in train or eval mode with a dynamic batch dimension.

    Args:
        canonical: state-dict name -> (kind, canonical name); tied weights map to one name.
    Raises:
        InvalidProgram: PyTorch cannot export the code, or the graph cannot be stated in our form.
    """
    module = _WithLoss(source)
    was_training = source.model.training
    module.train(kind == "train")
    batch = Dim("batch", min=1, max=MAX_BATCH)
    args = tuple(sample[field.name] for field in source.records.fields)
    try:
        shapes = {"fields": tuple({0: batch} for _ in args)}
        with quiet():
            exported = torch.export.export(module, args, dynamic_shapes=shapes, strict=False)
    except Exception as error:  # export runs the user's code and raises anything
        raise InvalidProgram(
            f"PyTorch cannot export the {kind} graph of {source.name!r}: {told(error)}",
            code="export-failed",
            remedy="The loss may depend on data only through tensors, and must accept any batch size.",
        ) from error
    finally:
        source.model.train(was_training)
    return _Converter(kind, exported, [field.name for field in source.records.fields], canonical).convert()


class _Converter:
    """Walks one exported program in order and writes our nodes."""

    def __init__(
        self,
        kind: GraphKind,
        exported: ExportedProgram,
        fields: list[str],
        canonical: Mapping[str, tuple[InputKind, str]],
    ) -> None:
        self.kind = kind
        self.exported = exported
        self.fields = iter(fields)
        self.canonical = canonical
        self.constants: dict[str, Tensor] = {}
        self.inputs: list[tuple[InputKind, str]] = []
        self.nodes: list[Node] = []
        self.values: dict[str, int] = {}  # fx node name -> value number: input i is i, node i is -1 - i until the end
        self.new_state: dict[str, int] = {}
        self.aliases: dict[int, set[int]] = {}  # value -> all values that may share its memory, itself included
        self.stale: list[tuple[int, set[int], str]] = []  # (node, values it would have changed too, operator)

    def convert(self) -> Exported:
        specs = {spec.arg.name: spec for spec in self.exported.graph_signature.input_specs}
        losses: int | None = None
        for node in self.exported.graph.nodes:
            if node.op == "placeholder":
                self._input(node.name, specs[node.name])
            elif node.op == "call_function":
                self._call(node)
            elif node.op == "output":
                losses = self._losses(node)
            elif node.op == "get_attr":  # a sub-graph: torch.no_grad() blocks, torch.cond, checkpointing
                raise fault(
                    self.kind, "contains a block (torch.no_grad, torch.cond, ...); use .detach() and torch.where"
                )
            elif not (node.op == "call_module" and node.target == "_guards_fn"):
                raise fault(self.kind, f"contains {node.op} {node.target!s}, which has no form in a program")
        if losses is None:
            raise fault(self.kind, "returns nothing")
        self._check_stale(losses)
        graph = pruned(self.kind, self.inputs, self.nodes, losses, self.new_state)
        check_graph(graph)
        used = {name for kind, name in graph.inputs if kind == "state"}
        return Exported(graph, {name: value for name, value in self.constants.items() if name in used})

    def _input(self, name: str, spec: Any) -> None:
        if spec.kind == ExportKind.USER_INPUT:
            entry: tuple[InputKind, str] = ("record", next(self.fields))
        elif spec.kind in (ExportKind.PARAMETER, ExportKind.BUFFER):
            entry = self.canonical[spec.target.removeprefix("model.")]
        elif spec.kind == ExportKind.CONSTANT_TENSOR:
            entry = ("state", f"constant.{self.kind}.{spec.target.replace('/', '.')}")
            self.constants[entry[1]] = self.exported.constants[spec.target]
        else:
            raise fault(self.kind, f"takes {spec.target!r}, a {spec.kind.name.lower()}, which a program cannot hold")
        if entry not in self.inputs:
            self.inputs.append(entry)
        self.values[name] = self.inputs.index(entry)

    def _call(self, node: fx.Node) -> None:
        name = name_of(node)
        if name in _CHECKS:
            return
        if name in COPIES or (name == DETACH and self._has_no_gradient(node.args[0])):
            value = self.values[node.name] = self._value(node.args[0])
            if name in COPIES and is_changed(node):
                self._add(node, "aten.clone.default", (Ref(value),), ())
            return
        args = tuple(self._arg(arg) for arg in node.args)
        kwargs = {key: self._arg(value) for key, value in node.kwargs.items() if key not in _DROPPED_KWARGS}
        if name == "aten.slice.Tensor":  # "to the end" is the largest int64, which JSON does not hold
            args = tuple(None if place == 3 and arg == 2**63 - 1 else arg for place, arg in enumerate(args))
        if name == "aten.embedding.default":  # no new program has sparse gradients; dense ones are the same numbers
            args = args[:4] + (False,) * (len(args) > 4)
            kwargs = kwargs | ({"sparse": False} if "sparse" in kwargs else {})
        if name in STATE_WRITERS:
            self._check_statistics(name, args, kwargs)
        pure = pure_form(name)
        self._add(node, pure or name, args, _sorted(kwargs))
        if pure is not None:
            self._keep_dtype(node, pure)
        if name == DETACH:
            self._detach(node, self.values[node.name])
        elif pure is not None:
            self._rebind(node, self.values[node.name], name)
        elif name in ALIASING:
            self._alias(self.values[node.name], {ref.index for ref in references(args)})

    def _check_statistics(self, name: str, args: tuple[Arg, ...], kwargs: dict[str, Arg]) -> None:
        """What an operator would update in place is the train graph's state, or it updates nothing."""
        mean, variance, uses_batch = STATE_WRITERS[name]
        if kwargs:
            raise fault(self.kind, f"calls {name} with keyword arguments")
        if args[uses_batch]:
            self._require_lasting({ref.index for ref in references((args[mean], args[variance]))}, name)

    def _add(self, node: fx.Node, op: str, args: tuple[Arg, ...], kwargs: tuple[tuple[str, Arg], ...]) -> None:
        self.nodes.append(Node(op, args, kwargs))
        self.values[node.name] = -len(self.nodes)

    def _alias(self, value: int, others: set[int]) -> None:
        group = {value}.union(*(self.aliases.get(other, {other}) for other in others))
        for member in group:
            self.aliases[member] = group

    def _has_no_gradient(self, arg: Any) -> bool:
        """Of records, state and constants there is nothing to detach."""
        value = self._value(arg)
        return (value >= 0 and self.inputs[value][0] != "parameter") or name_of(arg) in COPIES

    def _keep_dtype(self, node: fx.Node, pure: str) -> None:
        """What is changed in place keeps its dtype, where the pure form's result may have a wider one."""
        kept = node.meta["val"].dtype
        if pure in ALLOWED and dtype_of(node, pure) != kept:
            self._add(node, "aten.to.dtype", (Ref(self.values[node.name]), self._arg(kept)), ())

    def _detach(self, node: fx.Node, new: int) -> None:
        """Every name of the value means the detached one from here; other views of its memory keep their gradients, as in PyTorch."""
        old = self._value(node.args[0])
        if old >= 0:
            raise fault(self.kind, f"detaches {self.inputs[old][0]} {self.inputs[old][1]!r} in place; use .detach()")
        self._alias(new, {old})
        self._rename(old, new)

    def _rebind(self, node: fx.Node, new: int, name: str) -> None:
        """After an in-place operator every name of the old value means the new one; its other aliases are stale."""
        old = self._value(node.args[0])
        others = self.aliases.get(old, {old}) - {old}
        self._require_lasting({old, *others}, name)
        touched = [self.inputs[value] for value in (old, *others) if value >= 0]
        if touched and (touched[0][0] != "state" or self.kind != "train" or others):
            raise fault(self.kind, f"changes {touched[0][0]} {touched[0][1]!r} in place with {name}")
        if old >= 0:
            self.new_state[self.inputs[old][1]] = new
        self.stale.append((len(self.nodes), others, name))
        self._rename(old, new)

    def _require_lasting(self, values: set[int], name: str) -> None:
        """What the operator changes of the model is declared state."""
        if {self.inputs[value][1] for value in values if value >= 0} & self.constants.keys():
            raise no_buffer(self.kind, name)

    def _rename(self, old: int, new: int) -> None:
        self.new_state = {key: new if value == old else value for key, value in self.new_state.items()}
        self.values = {key: new if value == old else value for key, value in self.values.items()}

    def _check_stale(self, losses: int) -> None:
        """The pure form is only the same if nobody reads another view of the changed memory afterwards."""
        for position, others, name in self.stale:
            later = {losses}.union(*map(read_by, self.nodes[position:]))
            if later & others:
                raise fault(self.kind, f"changes a view in place with {name}; write it out of place")

    def _value(self, node: Any) -> int:
        if not isinstance(node, fx.Node) or node.name not in self.values:
            raise fault(self.kind, f"uses {node!s}, which has no form in a program")
        return self.values[node.name]

    def _arg(self, value: object) -> Arg:
        """Our form of one argument; references still carry provisional value numbers."""
        if isinstance(value, fx.Node):
            return Ref(self._value(value))
        if isinstance(value, list | tuple):
            return tuple(self._arg(item) for item in value)
        if isinstance(value, torch.dtype) and value in _DTYPE_NAMES:
            return DTypeName(_DTYPE_NAMES[value])
        if value is torch.contiguous_format or value is torch.preserve_format:
            return MemoryFormat(str(value).removeprefix("torch."))
        if value is None or isinstance(value, bool | int | float | str):
            return value
        raise fault(
            self.kind, f"uses the argument {value!s} of type {type(value).__name__}, which a program cannot hold"
        )

    def _losses(self, node: fx.Node) -> int:
        outputs = node.args[0]
        if not isinstance(outputs, tuple) or len(outputs) != 1 or not isinstance(outputs[0], fx.Node):
            raise _not_per_sample("must return exactly one tensor")
        value = outputs[0].meta.get("val")
        if not isinstance(value, Tensor) or value.dim() != 1 or not value.dtype.is_floating_point:
            shape = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
            raise _not_per_sample(f"returns {shape} instead of floats of shape (B,)")
        size: object = value.shape[0]  # a SymInt, unless the export found it to be constant
        if isinstance(size, int):
            raise _not_per_sample(f"returns {value.shape[0]} losses whatever the batch size")
        return self._value(outputs[0])


def _not_per_sample(what: str) -> InvalidProgram:
    return InvalidProgram(
        f"The loss {what}",
        code="losses-not-per-sample",
        remedy="Return one loss per sample, e.g. cross_entropy(..., reduction='none').",
    )


def _sorted(kwargs: dict[str, Arg]) -> tuple[tuple[str, Arg], ...]:
    return tuple(sorted(kwargs.items()))
