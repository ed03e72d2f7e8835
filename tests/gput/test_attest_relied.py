"""What an orchestrator shows of what it relied on, against its own signed words: each lie beside them, and words that cannot be shown."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from gput.attest.relied import borne_out
from orchestrator.sessions.attested import attestation_view
from shared.attestation.appraisals import appraise_gpu
from shared.attestation.ear import MEDIA_TYPE, claims_set
from shared.attestation.gpu_examination import examine_gpu_evidence
from shared.crypto.jws import sign_compact
from shared.crypto.signing import PartyKey
from shared.errors import VerificationFailed
from tests.attestation.gpu_evidence_world import AT, EMULATED, NONCE, Factory

KEY, DEVICE = PartyKey.generate(), Factory()
EXAMINED = examine_gpu_evidence(
    DEVICE.report(), DEVICE.pem(), nonce=NONCE, trust=DEVICE.trust, policy=EMULATED, at=AT
)  # fmt: skip
APPRAISED = appraise_gpu(EXAMINED, DEVICE.report(), EMULATED)
ABOUT = {"session": "s_1", "manifest": "ab" * 32, "life": "1"}


def item(change: Callable[[dict[str, Any]], object] = id) -> dict[str, Any]:
    """As the API shows one, of claims that its signer changed before it signed them."""
    claims = copy.deepcopy(claims_set([APPRAISED], build="test", at=int(AT), about=ABOUT))
    change(claims)
    token = sign_compact(claims, KEY, typ=MEDIA_TYPE)
    return attestation_view({"subject": "gpu", "life": 1, "signing_key": KEY.public.hex(), "token": token})


def test_an_honest_one_is_shown_as_it_is() -> None:
    assert borne_out("s_1", [item()], at=AT) == [item()]


LIES = {"life": 2, "at": 1, "verdict": "refused", "status": "affirming", "root_set": "NVIDIA", "backend": "HARDWARE",
        "kind": "tdx-quote", "checks": []}  # fmt: skip


@pytest.mark.parametrize("name", LIES)
def test_a_lie_beside_the_token_is_refused_by_name(name: str) -> None:
    honest = item()
    for lie in ({**honest, name: LIES[name]}, {key: value for key, value in honest.items() if key != name}):
        with pytest.raises(VerificationFailed, match=f"shows a {name} of gpu that") as caught:
            borne_out("s_1", [honest, lie], at=AT)
        assert caught.value.code == "result-contradicts"


def test_what_no_token_says_is_not_shown() -> None:
    assert borne_out("s_1", [item() | {"remark": "believe me"}], at=AT) == [item()]


@pytest.mark.parametrize("change", [
    lambda claims: claims["submods"]["gpu"]["gput.checks"][0].pop("reason"),
    lambda claims: claims["submods"]["gpu"]["gput.checks"][0].update(name=3),
    lambda claims: claims["submods"]["gpu"]["gput.checks"][0].update(indices=7),
    lambda claims: claims["gput.about"].pop("life"),
    lambda claims: claims["gput.about"].update(life="9" * 5000),
])  # fmt: skip
def test_signed_words_that_cannot_be_shown_are_refused_too(change: Callable[[dict[str, Any]], object]) -> None:
    with pytest.raises(VerificationFailed, match="does not bear out"):
        borne_out("s_1", [item(change)], at=AT)
