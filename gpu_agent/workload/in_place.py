"""What an exported graph changes in place, and by which pure operators that is written. Knows PyTorch's names; writes no graph."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Final

import torch
from torch import fx

from gpu_agent.workload.executor import resolve
from shared.claims.graph import GraphKind
from shared.claims.operators import ALIASING
from shared.errors import InvalidProgram

COPIES: Final = frozenset({"aten.lift_fresh_copy.default", "aten.lift_fresh.default"})
"""What a constant within the user's code is taken by, each time anew; PyTorch then detaches it, which has nothing to detach."""
DETACH: Final = "aten.detach_.default"
_PYTHON_NAMES: Final[dict[Callable[..., Any], str]] = {
    operator.getitem: "operator.getitem",
    operator.add: "operator.add",
    operator.sub: "operator.sub",
    operator.mul: "operator.mul",
    operator.floordiv: "operator.floordiv",
}


def name_of(node: fx.Node) -> str:
    """The name of its operator as our graphs have it."""
    own = _PYTHON_NAMES.get(node.target) if callable(node.target) else None
    return own or str(node.target)


def pure_form(name: str) -> str | None:
    """The operator that gives what an in-place one would leave; None where it changes nothing."""
    packet = name.split(".")[1] if name.count(".") == 2 else ""
    changes = packet.endswith("_") and not packet.endswith("__")
    return name.replace(f"{packet}.", f"{packet[:-1]}.") if changes else None


def is_changed(node: fx.Node) -> bool:
    """Whether anything changes this value in place, itself or by a view."""
    for user in node.users:
        name = name_of(user)
        if name != DETACH and pure_form(name) is not None and user.args[0] is node:
            return True
        if (name == DETACH or name in ALIASING) and is_changed(user):
            return True
    return False


def dtype_of(node: fx.Node, pure: str) -> torch.dtype:
    """What the pure form of an in-place node gives: asked of PyTorch, over the values without content that the export had."""
    args, kwargs = fx.node.map_arg((node.args, dict(node.kwargs)), lambda one: one.meta["val"])
    found: torch.dtype = resolve(pure)(*args, **kwargs).dtype
    return found


def no_buffer(kind: GraphKind, name: str) -> InvalidProgram:
    """What changes for good must be declared: else each graph has a copy of its own, and no evaluation sees what a training changed."""
    return InvalidProgram(
        f"The {kind} graph changes a tensor of the model, or of its code, in place with {name}, which is no buffer",
        remedy="Register it as a buffer (`register_buffer`): then it is state, declared, and evaluated with as it was trained.",
    )
