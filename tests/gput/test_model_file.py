"""A model's file against the digests of receipts: what the GPU's own layout gives, and files that are none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gput.model_file import check_model, model_check, model_digest
from orchestrator.weights import map_weights, write_header
from shared.canonical import sha256
from shared.claims.layout import RegionPlan, _place
from shared.claims.program import TensorSpec
from shared.errors import BadRequest, InvalidData, VerificationFailed

SPECS = [
    TensorSpec(name="wte", dtype="float32", shape=(3, 5)),
    TensorSpec(name="0.bias", dtype="float64", shape=()),
    TensorSpec(name="steps", dtype="int64", shape=(2,)),
    TensorSpec(name="none", dtype="uint8", shape=(0, 4)),
]


def written(path: Path) -> RegionPlan:
    plan = _place(SPECS)
    with path.open("wb") as file:
        write_header(file, plan)
        for number, placed in enumerate(plan.tensors):
            file.write(bytes([number + 1]) * placed.size_bytes)
    return plan


def test_it_is_the_digest_that_the_orchestrator_computes(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    plan = written(path)
    known = map_weights(path, sha256(path.read_bytes()).hex(), plan).region_digest()
    assert check_model(path, ["00" * 32, known]) == known == model_digest(path)
    with pytest.raises(VerificationFailed) as refused:
        check_model(path, ["00" * 32])
    assert (refused.value.code, refused.value.got) == ("model-not-of-receipts", known)
    with pytest.raises(VerificationFailed):
        check_model(path, [])


def test_every_byte_of_a_tensor_and_its_description_count(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    written(path)
    known, content = model_digest(path), path.read_bytes()
    changed = [
        content[:-1] + b"x",
        content.replace(b"wte", b"wtf"),
        content.replace(b"[3,5]", b"[5,3]"),
        content.replace(b"I64", b"F64"),
    ]
    for number, other in enumerate(changed):
        (tmp_path / str(number)).write_bytes(other)
        assert model_digest(tmp_path / str(number)) != known


def _file(header: object, data: bytes = bytes(24)) -> bytes:
    raw = json.dumps(header).encode()
    return len(raw).to_bytes(8, "little") + raw + data


def _one(**changes: object) -> bytes:
    return _file({"w": {"dtype": "F32", "shape": [3, 2], "data_offsets": [0, 24]} | changes})


MALFORMED = {
    "no header": b"\x01", "a header longer than the file": (1 << 40).to_bytes(8, "little") + b"{}", "no object": _file([]),
    "no JSON": b"\x02" + bytes(7) + b"}{", "an unknown type": _one(dtype="F8"), "no shape": _one(shape=None),
    "another length": _one(shape=[2]), "outside": _one(data_offsets=[24, 48]), "before": _one(data_offsets=[-24, 0]),
    "text": _one(data_offsets="ab"), "a fraction": _one(data_offsets=[0.0, 24.0]), "no entry": _file({"w": 1}),
    "a name of none": _file({"../w": {"dtype": "F32", "shape": [], "data_offsets": [0, 4]}}),
}  # fmt: skip


@pytest.mark.parametrize("case", MALFORMED)
def test_what_is_no_model_is_said(tmp_path: Path, case: str) -> None:
    (tmp_path / "model").write_bytes(MALFORMED[case])
    with pytest.raises(InvalidData) as refused:
        model_digest(tmp_path / "model")
    assert refused.value.code == "weights-malformed"


def test_one_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    for path in (tmp_path / "empty", tmp_path / "absent", tmp_path):
        with pytest.raises(BadRequest):
            model_digest(path)
    assert model_check("s_a", None) is None
