"""Finds every problem code that the product can give an error, by reading its source. Runs nothing of it.

A code is what is given as `code` to a call, as a constant, a conditional, a module's constant or an f-string; where it is a parameter
of the function around the call, what that function's callers give, and so on. A class's parameters are those of `__init__`, or its fields.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

PACKAGES = ("shared", "orchestrator", "data_holder", "gpu_agent", "gput")
CODE = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
LOGGED = frozenset({"debug", "info", "warning", "error", "new_fact"})
"""Calls that write down the code of an error which was raised elsewhere."""
OTHER_CODES = frozenset(
    {"check_set", "Launch", "Measured", "ProgramLoaded", "replace", "Placement", "WorkState", "StockAnswer"}
)
"""What takes a `code` that is a program's text, a place in memory, or passed on."""
TAKE_CODES = (
    "not_checked", "_NotChecked", "problem", "bare_problem", "failed_message", "refusal", "Finding", "Failed", "_refuse", "_report",
    "Expired", "Remark",
)  # fmt: skip
"""What makes a failure out of a `code` without an error."""

Function = ast.FunctionDef | ast.AsyncFunctionDef
Step = tuple["Callee", str, str, str]


@dataclass(frozen=True)
class Callee:
    """A function or class of the product, by the module that defines it and its own name."""

    module: str
    name: str


@dataclass
class Module:
    """What a module says: its constant texts, what it imports, the parameters of what it defines, the calls in it."""

    path: Path
    name: str
    constants: dict[str, str] = field(default_factory=dict)
    imported: dict[str, Callee] = field(default_factory=dict)
    parameters: dict[str, list[list[str]]] = field(default_factory=lambda: defaultdict(list))
    calls: list[tuple[ast.Call, list[ast.AST]]] = field(default_factory=list)


@dataclass
class Found:
    """`codes`: code -> places that give it. `unread`: places whose code this reader cannot make out -> what stands there."""

    codes: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    unread: dict[str, str] = field(default_factory=dict)


def _assigned(tree: ast.AST) -> Iterator[tuple[ast.Name, str]]:
    """Names that are given a constant text, alone or in a row of several."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        target, value = node.targets[0] if isinstance(node, ast.Assign) else node.target, node.value
        both = isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple)
        pairs = zip(target.elts, value.elts, strict=True) if both else [(target, value)]  # type: ignore[union-attr]
        for name, given in pairs:
            if isinstance(name, ast.Name) and isinstance(given, ast.Constant) and isinstance(given.value, str):
                yield name, given.value


class _Reader(ast.NodeVisitor):
    def __init__(self, module: Module) -> None:
        self._module = module
        self._inside: list[ast.AST] = []

    def _within(self, node: ast.AST) -> None:
        self._inside.append(node)
        self.generic_visit(node)
        self._inside.pop()

    def _function(self, node: Function) -> None:
        arguments = [each.arg for each in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
        self._module.parameters[_callable(node, self._inside)].append(arguments[arguments[:1] in (["self"], ["cls"]) :])
        self._within(node)

    visit_FunctionDef = visit_AsyncFunctionDef = _function  # noqa: N815  # the names that ast calls

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for each in node.names:
            self._module.imported[each.asname or each.name] = Callee(node.module or "", each.name)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        named = [each.target for each in node.body if isinstance(each, ast.AnnAssign)]
        self._module.parameters[node.name].append([each.id for each in named if isinstance(each, ast.Name)])
        self._within(node)

    def visit_Call(self, node: ast.Call) -> None:
        self._module.calls.append((node, list(self._inside)))
        self.generic_visit(node)


def _callable(function: Function, inside: list[ast.AST]) -> str:
    """What is called to run `function`: for `__init__`, its class."""
    outer = inside[-1] if inside else None
    return outer.name if function.name == "__init__" and isinstance(outer, ast.ClassDef) else function.name


def _takes(module: Module, name: str, parameter: str) -> bool:
    return any(parameter in each for each in module.parameters.get(name, ()))


def _last(function: ast.expr) -> str:
    named = {ast.Attribute: "attr", ast.Name: "id"}.get(type(function))
    return str(getattr(function, named)) if named else ""


def _rows(around: Function, name: str) -> list[ast.expr] | None:
    """What a loop of this function over a written-out list gives `name`."""
    lists = {
        node.targets[0].id: node.value
        for node in ast.walk(around)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    for node in ast.walk(around):
        if isinstance(node, ast.For) and isinstance(node.target, ast.Tuple):
            listed = lists.get(node.iter.id) if isinstance(node.iter, ast.Name) else node.iter
            targets = [each.id if isinstance(each, ast.Name) else "" for each in node.target.elts]
            if name in targets and isinstance(listed, ast.Tuple):
                return [row.elts[targets.index(name)] for row in listed.elts if isinstance(row, ast.Tuple)]
    return None


class _Collector:
    def __init__(self, root: Path) -> None:
        self.found = Found()
        self._modules: dict[str, Module] = {}
        self._by_name: dict[str, list[tuple[Module, ast.Call, list[ast.AST]]]] = defaultdict(
            list
        )  # calls, by what is called
        for path in sorted(path for package in PACKAGES for path in (root / package).rglob("*.py")):
            module = Module(path.relative_to(root), ".".join(path.relative_to(root).with_suffix("").parts))
            tree = ast.parse(path.read_text())
            module.constants = {name.id: given for name, given in _assigned(tree)}
            _Reader(module).visit(tree)
            self._modules[module.name] = module
            for call, inside in module.calls:
                self._by_name[_last(call.func)].append((module, call, inside))
            for name, given in _assigned(tree):
                if name.id == "default_code":  # each error class's own
                    self.found.codes[given].append(f"{module.path}:{name.lineno}")

    def collect(self) -> Found:
        """Follow each parameter that is a code to where it comes from."""
        due: list[Step] = []
        for module in self._modules.values():
            due += [(Callee(module.name, name), "code", "", "") for name in TAKE_CODES if _takes(module, name, "code")]
            for call, inside in module.calls:
                if _last(call.func) not in LOGGED | OTHER_CODES:
                    for keyword in call.keywords:
                        if keyword.arg == "code":
                            due += self._read(module, inside, keyword.value, "", "")
        done: set[Step] = set()
        while due:
            if (step := due.pop()) not in done:
                done.add(step)
                due += self._callers(*step)
        return self.found

    def _callers(self, callee: Callee, parameter: str, before: str, after: str) -> list[Step]:
        found: list[Step] = []
        for module, call, inside in self._by_name[callee.name]:
            if self._calls(module, call, callee):
                for value in self._arguments(call, callee, parameter):
                    found += self._read(module, inside, value, before, after)
        return found

    def _calls(self, module: Module, call: ast.Call, callee: Callee) -> bool:
        if isinstance(call.func, ast.Name):
            return module.imported.get(callee.name, Callee(module.name, callee.name)) == callee
        return not callee.name.startswith("_") or module.name == callee.module

    def _arguments(self, call: ast.Call, callee: Callee, parameter: str) -> list[ast.expr]:
        """What the call gives this parameter; of methods of one name, what it would give that of each."""
        named = [keyword.value for keyword in call.keywords if keyword.arg == parameter]
        if named or any(isinstance(each, ast.Starred) for each in call.args):
            return named
        known = [each for each in self._modules[callee.module].parameters[callee.name] if parameter in each]
        places = {each.index(parameter) for each in known}
        return [call.args[place] for place in places if place < len(call.args)]

    def _read(self, module: Module, inside: list[ast.AST], value: ast.expr, before: str, after: str) -> Iterator[Step]:
        """Notes what `value` says; what it leaves to the callers is yielded."""
        match value:
            case ast.Constant(value=str(text)):
                self._note(before + text + after, f"{module.path}:{value.lineno}")
            case ast.Constant():
                pass
            case ast.IfExp():
                yield from self._read(module, inside, value.body, before, after)
                yield from self._read(module, inside, value.orelse, before, after)
            case ast.JoinedStr(values=[ast.Constant(value=str(text)), ast.FormattedValue(value=inner)]):
                yield from self._read(module, inside, inner, before + text, after)
            case ast.JoinedStr(values=[ast.FormattedValue(value=inner), ast.Constant(value=str(text))]):
                yield from self._read(module, inside, inner, before, text + after)
            case ast.Name():
                yield from self._named(module, inside, value, before, after)
            case ast.Attribute(attr="code") if not before and not after:
                pass  # of an error that was raised elsewhere, or of a class that is read by itself
            case _:
                self._unread(module, value)

    def _named(self, module: Module, inside: list[ast.AST], value: ast.Name, before: str, after: str) -> Iterator[Step]:
        for depth, around in reversed(list(enumerate(inside))):
            if not isinstance(around, Function):
                continue
            if (rows := _rows(around, value.id)) is not None:
                for row in rows:
                    yield from self._read(module, inside[:depth], row, before, after)
                return
            name = _callable(around, inside[:depth])
            if _takes(module, name, value.id):
                yield Callee(module.name, name), value.id, before, after
                return
        home = module.imported.get(value.id)
        constants = self._modules[home.module].constants if home and home.module in self._modules else module.constants
        known = constants.get(home.name if home else value.id)
        if known is None:
            self._unread(module, value)
        else:
            self._note(before + known + after, f"{module.path}:{value.lineno}")

    def _note(self, code: str, where: str) -> None:
        if CODE.fullmatch(code):  # else another method's argument
            self.found.codes[code].append(where)

    def _unread(self, module: Module, value: ast.expr) -> None:
        self.found.unread[f"{module.path}: {ast.unparse(value)}"] = f"line {value.lineno}"


def collect(root: Path) -> Found:
    """The codes of the packages under `root`."""
    return _Collector(root).collect()
