"""What no new program may hold is refused where one comes in; an archive that was accepted before opens and trains on."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from torch import nn

from gpu_agent.workload.builder import build
from shared.canonical import cbor_value
from shared.claims.archive import open_archive
from shared.claims.new_programs import check_new, pack
from shared.claims.program import ProgramManifest
from shared.claims.training import SGD, AdamW, TrainingOptions
from shared.errors import InvalidProgram
from tests.workload.user_models import IDS, looked_up, source_of, with_sparse_gradients
from tests.workload.workload_helpers import Built, bytes_tensor, place, repack


def refusal(archive: bytes) -> InvalidProgram:
    """That of whoever takes it in as new: the check's, which is that of packing."""
    opened, top = open_archive(archive), cbor_value(archive)
    with pytest.raises(InvalidProgram) as refused:
        check_new(opened)
    with pytest.raises(InvalidProgram) as packed:
        pack(ProgramManifest.model_validate(json.loads(top["manifest"])), top["graphs"])
    assert (packed.value.detail, bool(refused.value.remedy)) == (refused.value.detail, True)
    return refused.value


@pytest.mark.parametrize("optimizer", [AdamW(lr=1e-2), SGD(lr=1e-2), SGD(lr=1e-2, momentum=0.9)], ids=repr)
def test_an_accepted_program_with_sparse_gradients_trains_on(optimizer: AdamW | SGD) -> None:
    """To where dense ones lead: on a CPU gradients lie in memory that is dense."""
    archive, weights = build(source_of(nn.Embedding(10, 3), looked_up, IDS))
    ids, trained = torch.tensor([[1, 1], [9, 0]], dtype=torch.uint16), []
    for made in (archive, with_sparse_gradients(archive)):
        placed = place((made, weights), TrainingOptions(batch_size=2, optimizer=optimizer))
        before = placed.params["weight"].detach().clone()
        for step in range(3):
            placed.trainer.train(bytes_tensor(ids), 2, step, 1)
        trained.append(placed.params["weight"].detach())
        assert not torch.equal(before[[0, 1, 9]], trained[-1][[0, 1, 9]])
    torch.testing.assert_close(*trained)


def test_a_new_program_has_no_sparse_gradients() -> None:
    archive, _ = build(source_of(nn.Embedding(10, 3), looked_up, IDS))
    assert "aten.embedding.default) has sparse gradients" in refusal(with_sparse_gradients(archive)).detail


def _rule(kind: str = "constant", **numbers: float) -> dict[str, Any]:
    return {"name": "wte.weight", "kind": kind, "std": 0, "value": 0} | numbers


@pytest.mark.parametrize(
    ("dtype", "rule", "words"),
    [
        ("int64", _rule("normal", std=1.0), "draws or states a fraction"),
        ("int32", _rule(value=0.5), "draws or states a fraction"),
        ("uint8", _rule(value=1e9), "uint8 does not hold"),
        ("bool", _rule(value=2.0), "bool does not hold"),
        ("int32", _rule(value=-(2.0**31) - 1), "int32 does not hold"),
        ("float32", _rule(value=1e300), "float32 does not hold"),
        ("float32", _rule("normal", std=1e300), "float32 does not hold"),
        ("float64", _rule("normal", std=1e300), ""),
        ("int64", _rule(value=-(2.0**60)), ""),
        ("uint8", _rule(value=255.0), ""),
    ],
    ids=str,
)
def test_seed_rules_make_what_their_tensors_hold(
    dtype: str, rule: dict[str, Any], words: str, tiny_gpt2: Built
) -> None:
    """Also where they do not the archive opens: somebody may be training it."""

    def declare(manifest: dict[str, Any], _train: dict[str, Any], _eval: dict[str, Any]) -> None:
        manifest["state"].append({"name": "seen", "dtype": dtype, "shape": [2]})
        manifest["initial_weights"]["rules"].append(rule | {"name": "seen"})

    archive = repack(tiny_gpt2[0], declare)
    opened = open_archive(archive)
    assert opened.manifest.state[0].dtype == dtype
    if words:
        assert words in refusal(archive).detail
    else:
        check_new(opened)
