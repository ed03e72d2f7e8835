"""A seed rule that the tensor's dtype does not hold is refused with the archive, before anything is filled."""

from __future__ import annotations

from typing import Any

import pytest

from shared.claims.archive import open_archive
from shared.errors import InvalidProgram
from tests.workload.workload_helpers import Built, repack


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
    def declare(manifest: dict[str, Any], _train: dict[str, Any], _eval: dict[str, Any]) -> None:
        manifest["state"].append({"name": "seen", "dtype": dtype, "shape": [2]})
        manifest["initial_weights"]["rules"].append(rule | {"name": "seen"})

    archive = repack(tiny_gpt2[0], declare)
    if not words:
        assert open_archive(archive).manifest.state[0].dtype == dtype
        return
    with pytest.raises(InvalidProgram, match=words) as refused:
        open_archive(archive)
    assert refused.value.remedy
