"""Archives: the same program gives the same bytes, and every single fault is refused by name, touching nothing."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_agent.workload.builder import build
from gpu_agent.workload.executor import _DIRECT, resolve
from gpu_agent.workload.guarded import GUARDED
from gpu_agent.workload.loader import load_program
from shared.canonical import cbor_bytes, cbor_value, sha384
from shared.claims.archive import MAX_ARCHIVE_BYTES, open_archive
from shared.claims.operators import ALLOWED, CREATION, GROUPS, RANDOM, STATE_WRITERS, TUPLE_RESULT
from shared.errors import BadRequest, InvalidProgram
from tests.adversary.rows import attack
from tests.workload.workload_helpers import repack

Built = tuple[bytes, bytes | None]


def test_building_twice_gives_the_same_bytes(tiny_gpt2: Built, noisy_classifier: Built) -> None:
    assert build("gpt2", layers=2, heads=2, width=32, context=16) == tiny_gpt2
    again = build("classifier", features=6, classes=3, hidden=(16, 8), batch_norm=True, dropout=0.25, seed=4)
    assert again == noisy_classifier
    assert build("gpt2", layers=2, heads=2, width=32, context=16, seed=1) != tiny_gpt2


def test_digest_is_sha384_of_the_manifest_and_the_archive_holds_no_weights(tiny_gpt2: Built) -> None:
    opened = open_archive(tiny_gpt2[0])
    assert opened.digest == sha384(cbor_value(tiny_gpt2[0])["manifest"])
    assert tiny_gpt2[1] is None
    assert len(tiny_gpt2[0]) < 20_000
    assert [spec.name for spec in opened.manifest.parameters].count("wte.weight") == 1
    assert opened.manifest.state == ()


def _set(path: str, value: Any) -> Callable[[dict[str, Any], dict[str, Any], dict[str, Any]], None]:
    """A change of one place in the train graph (or, with `manifest.`, in the manifest)."""

    def change(manifest: dict[str, Any], train: dict[str, Any], _: dict[str, Any]) -> None:
        parts = path.split(".")
        here: Any = manifest if parts[0] == "manifest" else train
        for part in parts[1:-1]:
            here = here[int(part)] if isinstance(here, list) else here[part]
        here[int(parts[-1]) if isinstance(here, list) else parts[-1]] = value

    return change


def _bad_operator(name: str) -> Callable[[dict[str, Any], dict[str, Any], dict[str, Any]], None]:
    def change(manifest: dict[str, Any], train: dict[str, Any], _: dict[str, Any]) -> None:
        train["nodes"][0]["op"] = name
        manifest["operators"] = sorted({*manifest["operators"], name})

    return change


def _append(node: dict[str, Any], *, kind: str = "train") -> Callable[..., None]:
    def change(manifest: dict[str, Any], train: dict[str, Any], evaluation: dict[str, Any]) -> None:
        (train if kind == "train" else evaluation)["nodes"].append(node)
        manifest["operators"] = sorted({*manifest["operators"], node["op"]})

    return change


def _call(op: str, *args: Any, **kwargs: Any) -> dict[str, Any]:
    return {"op": op, "args": list(args), "kwargs": kwargs}


FAULTS: dict[str, tuple[Callable[..., None], str]] = {
    "file operator": (_bad_operator("aten.from_file.default"), "not an allowed operator"),
    "uninitialised memory": (_bad_operator("aten.empty.memory_format"), "not an allowed operator"),
    "storage re-interpretation": (_bad_operator("aten.as_strided.default"), "not an allowed operator"),
    "in-place operator": (_bad_operator("aten.add_.Tensor"), "not an allowed operator"),
    "randomness": (_bad_operator("aten.rand_like.default"), "not an allowed operator"),
    "python name": (_bad_operator("builtins.eval"), "not an allowed operator"),
    "dunder name": (_bad_operator("aten.__class__.default"), "not an allowed operator"),
    "import string": (_bad_operator("__import__('os').system('id')"), "not an allowed operator"),
    "eval-like argument": (_set("train.nodes.0.args.0", "__import__('os').system('id')"), "none of the allowed forms"),
    "operator not text": (_set("train.nodes.0.op", 7), "short name"),
    "forward reference": (_set("train.nodes.0.args.0", {"ref": 10_000}), "does not point backwards"),
    "self reference": (_append(_call("aten.relu.default", {"ref": 10_000})), "does not point backwards"),
    "negative reference": (_set("train.nodes.0.args.0", {"ref": -1}), "does not point backwards"),
    "true as reference": (_set("train.nodes.0.args.0", {"ref": True}), "none of the allowed forms"),
    "unknown tag": (_set("train.nodes.0.args.0", {"path": "/etc/passwd"}), "none of the allowed forms"),
    "unknown dtype": (_set("train.nodes.0.args.0", {"dtype": "object"}), "none of the allowed forms"),
    "deep list": (_set("train.nodes.0.args.0", [[[[1]]]]), "none of the allowed forms"),
    "bare fraction": (_set("train.nodes.0.args.0", 0.5), "none of the allowed forms"),
    "out keyword": (_set("train.nodes.0.kwargs", {"out": {"ref": 0}}), "keyword argument is not allowed"),
    "device keyword": (_set("train.nodes.0.kwargs", {"device": "cuda"}), "keyword argument is not allowed"),
    "extra node key": (_set("train.nodes.0.meta", "stack trace"), "exactly the keys"),
    "extra graph key": (_set("train.weights", "x"), "exactly the keys"),
    "wrong kind": (_set("train.kind", "eval"), "format"),
    "undeclared input": (_set("train.inputs.0", ["parameter", "secret"]), "does not declare"),
    "input of unknown kind": (_set("train.inputs.0", ["file", "wte.weight"]), "does not declare"),
    "input twice": (_set("train.inputs.1", ["parameter", "wte.weight"]), "twice"),
    "losses are no reference": (_set("train.outputs.losses", 1), "outputs must be"),
    "undeclared state output": (_set("train.outputs.state", {"wte.weight": {"ref": 0}}), "may not change"),
    "size arithmetic on tensors": (_append(_call("operator.mul", {"ref": 0}, {"ref": 0})), "takes two integers"),
    "text times integer": (_append(_call("operator.mul", "A", 10**9)), "takes two integers"),
    "getitem of a tensor": (_append(_call("operator.getitem", {"ref": 0}, 0)), "takes a tuple"),
    "operator of nothing": (_append(_call("aten.relu.default")), "takes no value"),
    "wrong arguments": (_append(_call("aten.relu.default", {"ref": 0}, 1, 2)), "does not take"),
    "unknown keyword": (_append(_call("aten.relu.default", {"ref": 0}, inplace=True)), "does not take"),
    "dropout in eval": (
        _append(_call("aten.dropout.default", {"ref": 0}, {"float": 0.5}, True), kind="eval"),
        "draws random numbers",
    ),
    "dropout in eval by names": (
        _append(_call("aten.dropout.default", {"ref": 0}, p={"float": 0.5}, train=True), kind="eval"),
        "draws random numbers",
    ),
    "feature dropout in eval by names": (
        _append(_call("aten.feature_dropout.default", input={"ref": 0}, p={"float": 0.5}, train=True), kind="eval"),
        "draws random numbers",
    ),
    "dropout's probability in eval by name": (
        _append(_call("aten.dropout.default", {"ref": 0}, p={"float": 0.5}), kind="eval"),
        "draws random numbers",
    ),
    "attention's dropout in eval by name": (
        _append(
            _call("aten.scaled_dot_product_attention.default", *[{"ref": 0}] * 3, dropout_p={"float": 0.5}), kind="eval"
        ),
        "draws random numbers",
    ),
    "batch norm writes a parameter": (
        _append(_call("aten.batch_norm.default", *[{"ref": 0}] * 5, True, {"float": 0.1}, {"float": 0.1}, False)),
        "would update",
    ),
    "operators understated": (_set("manifest.operators", []), "list of operators"),
    "unknown manifest field": (_set("manifest.entry_point", "os:system"), "Extra inputs"),
    "manifest of another format": (_set("manifest.format", "gput-program/2"), "format: Input should be"),
    "infinite dimension": (_set("manifest.parameters.0.shape", [2**40]), "shape"),
    "integer parameter": (_set("manifest.parameters.0.dtype", "int64"), "only floats"),
    "path as tensor name": (_set("manifest.parameters.0.name", "../../etc/passwd"), "name"),
    "parameter named twice": (_set("manifest.parameters.1.name", "wte.weight"), "twice"),
    "seed rules incomplete": (_set("manifest.initial_weights.rules", []), "seed rules"),
    "graph missing in manifest": (_set("manifest.graphs", {}), "exactly the graphs"),
}


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_one_fault_is_refused_by_name(fault: str, tiny_gpt2: Built) -> None:
    change, words = FAULTS[fault]
    with pytest.raises(InvalidProgram, match=words):
        load_program(repack(tiny_gpt2[0], change))


def test_repacking_without_a_change_is_accepted(tiny_gpt2: Built) -> None:
    assert repack(tiny_gpt2[0], lambda *_: None) == tiny_gpt2[0]
    load_program(tiny_gpt2[0])


class _Exploit:
    def __reduce__(self) -> tuple[Any, ...]:
        return (subprocess.check_output, (["id"],))


def _top(data: bytes, **changes: Any) -> bytes:
    return cbor_bytes(cbor_value(data) | changes)


ENVELOPES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "pickle": lambda _: pickle.dumps(_Exploit()),
    "zip, as torch.save writes": lambda _: b"PK\x03\x04" + bytes(200),
    "truncated": lambda data: data[:-1],
    "trailing bytes": lambda data: data + b"\0",
    "oversized": lambda data: data + bytes(MAX_ARCHIVE_BYTES),
    "another format": lambda data: _top(data, format="gput-program/9"),
    "extra entry": lambda data: _top(data, weights=b"x"),
    "third graph": lambda data: _top(data, graphs=cbor_value(data)["graphs"] | {"init": b"{}"}),
    "pickled graph": lambda data: _top(data, graphs=cbor_value(data)["graphs"] | {"train": pickle.dumps(_Exploit())}),
    "manifest as text": lambda data: _top(data, manifest="{}"),
    "manifest with spaces": lambda data: _top(data, manifest=cbor_value(data)["manifest"] + b" "),
    "graphs swapped": lambda data: _top(
        data, graphs={"train": cbor_value(data)["graphs"]["eval"], "eval": cbor_value(data)["graphs"]["train"]}
    ),
    "wrong digest": lambda data: data.replace(b'"kind":"train"', b'"kind":"eval" '),
}


@pytest.mark.parametrize("envelope", ENVELOPES, ids=str)
def test_bad_envelopes_are_refused(envelope: str, tiny_gpt2: Built) -> None:
    with pytest.raises(InvalidProgram):
        load_program(ENVELOPES[envelope](tiny_gpt2[0]))


@settings(max_examples=60, deadline=None)
@given(position=st.integers(0, 10**6), value=st.integers(1, 255))
def test_any_flipped_byte_is_refused(tiny_gpt2: Built, position: int, value: int) -> None:
    data = bytearray(tiny_gpt2[0])
    at = position % len(data)
    data[at] ^= value
    try:
        opened = open_archive(bytes(data))
    except InvalidProgram:
        return
    assert opened.digest != open_archive(tiny_gpt2[0]).digest  # a valid change of the manifest is another program


@attack("H23", any="stopped: own format, strict schema, allow-list; nothing is opened or run")
def test_opening_hostile_archives_opens_no_file_process_or_socket(tiny_gpt2: Built) -> None:
    hostile = [repack(tiny_gpt2[0], change) for change, _ in FAULTS.values()]
    hostile += [make(tiny_gpt2[0]) for make in ENVELOPES.values()]
    load_program(tiny_gpt2[0])  # imports are done
    seen: list[str] = []
    watching, here = True, threading.get_ident()  # other threads of the test process have their own business
    outward = (
        "open",
        "os.",
        "subprocess.",
        "socket.",
        "import",
        "exec",
        "compile",
        "pickle.",
        "ctypes.dlopen",
        "shutil.",
    )

    def hook(event: str, about: tuple[Any, ...]) -> None:
        if watching and threading.get_ident() == here and event.startswith(outward):
            seen.append(event if event == "open" else f"{event} {about[:1]}")

    sys.addaudithook(hook)
    open(__file__, "rb").close()  # proves that the hook sees what it must
    assert seen == ["open"]
    seen.clear()
    refused = 0
    for data in hostile:
        try:
            load_program(data)
        except InvalidProgram:
            refused += 1
    load_program(tiny_gpt2[0])
    watching = False
    assert refused == len(hostile)
    assert seen == []


def test_allow_list_is_sound() -> None:
    """Every name exists in this PyTorch, is grouped with a reason, writes to nothing and draws only where stated."""
    assert set(ALLOWED.values()) == set(GROUPS)
    for name in ALLOWED:
        function = resolve(name)
        schema = getattr(function, "_schema", None)
        if schema is None or name == "aten.sym_size.int":
            continue
        assert not schema.is_mutable, name
        draws = torch.Tag.nondeterministic_seeded in function.tags  # type: ignore[attr-defined]
        assert draws == (name in RANDOM), name
        for place in filter(None, RANDOM.get(name, ())):
            assert schema.arguments[place[0]].name == place[1], name
        tuple_result = len(schema.returns) != 1 or str(schema.returns[0].type) != "Tensor"
        assert tuple_result == (name in TUPLE_RESULT), name
        running = [a.name for a in schema.arguments if a.name == "running_mean"]
        assert bool(running) == (name in STATE_WRITERS), name
        assert not any("empty" in part or "file" in part for part in name.split(".")), name
    assert set(_DIRECT) | set(GUARDED) <= set(ALLOWED) - CREATION


def test_nothing_outside_the_allow_list_resolves() -> None:
    for name in ("aten.from_file.default", "aten._reshape_alias.default", "os.system", "aten.add_.Tensor"):
        with pytest.raises(InvalidProgram):
            resolve(name)


def test_size_arithmetic_cannot_explode() -> None:
    square = resolve("operator.mul")
    with pytest.raises(OverflowError):
        square(2**40, 2**40)


def test_unknown_targets_and_options_are_named() -> None:
    for target, options in (("nope", {}), ("no_such_module:f", {}), ("gpt2", {"wings": 2}), ("gpt2", {"width": 30})):
        with pytest.raises(BadRequest, match=target.split(":")[0] if target != "gpt2" else "options"):
            build(target, **options)
