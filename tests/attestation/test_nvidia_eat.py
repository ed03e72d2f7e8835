"""NVIDIA's detached EAT bundles: read strictly, compared with themselves, never taken for a verdict of ours."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from shared.attestation.nvidia_eat import NvidiaBundle, parse_eat
from shared.attestation.results import Expired
from shared.errors import BadRequest, VerificationFailed
from tests.attestation.gpu_samples import H100, SAMPLES, needs_samples
from tests.attestation.nvidia_eat_world import bundle, token

AT = 1_700_000_000


def all_checks(found: NvidiaBundle, at: int = AT) -> None:
    found.check_digests()
    found.check_verdict()
    found.check_time(at)


def test_a_sound_bundle_is_whole() -> None:
    found = parse_eat(bundle(AT))
    all_checks(found)
    all_checks(found, AT + 3600)
    assert found.submodules["GPU-0"]["x-nvidia-gpu-driver-version"] == "580.0"


@needs_samples
def test_the_published_one() -> None:
    found = parse_eat((SAMPLES / H100 / "claims_v3_detached_eat.json").read_bytes())
    all_checks(found, found.platform["iat"])
    decoded = json.loads((SAMPLES / H100 / "claims_v3_decoded.json").read_text())["GPU-0"]
    assert found.submodules["GPU-0"].keys() == decoded.keys()
    with pytest.raises(Expired):
        found.check_time(found.platform["exp"] + 1)


@pytest.mark.parametrize(
    ("made", "code"),
    [
        (lambda: bundle(AT, swapped=True), "eat-digest"),
        (lambda: bundle(AT, submods={}), "eat-digest"),
        (lambda: bundle(AT, submods={"GPU-1": ["DIGEST", ["SHA-256", "00"]]}), "eat-digest"),
        (lambda: bundle(AT, submods=None), "eat-digest"),
        (lambda: bundle(AT, accepted=False), "eat-refused"),
        (lambda: bundle(AT, **{"x-nvidia-overall-att-result": "true"}), "eat-refused"),
        (lambda: bundle(AT, exp="never"), "eat-time"),
        (lambda: bundle(AT, nbf=True), "eat-time"),
        (lambda: bundle(AT, exp=AT - 1), "eat-expired"),
        (lambda: bundle(AT, nbf=AT + 1), "eat-expired"),
    ],
)
def test_what_does_not_hold_is_named(made: Callable[[], bytes], code: str) -> None:
    with pytest.raises(VerificationFailed) as refused:
        all_checks(parse_eat(made()))
    assert refused.value.code == code


NOT_BUNDLES: dict[str, Callable[[], object]] = {
    "no token": lambda: [["JWT"], {}],
    "a number": lambda: [["JWT", 3], {}],
    "two parts": lambda: [["JWT", "a.b"], {}],
    "no base64url": lambda: [["JWT", "ä.b.c"], {}],
    "no JSON": lambda: [["JWT", "YQ.YQ.YQ"], {}],
    "one thing more": lambda: [["JWT", token({}), 1], {}],
    "a submodule of nothing": lambda: [["JWT", token({})], {"GPU-0": None}],
    "another algorithm": lambda: [["JWT", token({}, {"alg": "none"})], {}],
    "a short signature": lambda: [["JWT", token({})[:-4]], {}],
    "too many submodules": lambda: [["JWT", token({})], dict.fromkeys(map(str, range(65)), token({}))],
    "an object": dict,
    "empty": lambda: [[], {}],
}


@pytest.mark.parametrize("made", NOT_BUNDLES.values(), ids=list(NOT_BUNDLES))
def test_what_is_no_bundle_is_refused(made: Callable[[], object]) -> None:
    with pytest.raises(BadRequest):
        parse_eat(json.dumps(made()).encode())
