"""Signed answers: RFC 9421 signatures of responses, each over the request that it answers. Knows no web framework, client or address.

A request asks for one by Accept-Signature (section 5). Label `gput-answer`; covered are, in this order, `@status`, `content-digest` (also
of no bytes), those of `FIELDS` that the answer has, and the request's own signature, `"signature";req;key="gput"` (section 2.4). That one
is over a nonce, method, address and body, and no signature is heard twice: so there is at most one such answer to each request, and it is
none to any other. Parameters: `created`, `keyid`, `tag="gput-answer/1"`. The tag stands for all of that; anything else is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from shared.canonical import sha256
from shared.crypto.signing import fingerprint, verify_http
from shared.errors import VerificationFailed
from shared.service.signature_base import (
    DIGEST_HEADER,
    content_digest,
    digest_in,
    signature_base,
    signature_field,
    signature_in,
)
from shared.service.signatures import LABEL as REQUEST_LABEL
from shared.service.signatures import RequestKey

LABEL: Final = "gput-answer"
TAG: Final = "gput-answer/1"
FIELDS: Final = ("content-type", "etag", "location", "retry-after")
"""What somebody acts on besides status and body."""
ACCEPT_HEADER: Final = "accept-signature"
ACCEPT_ANSWER: Final = (
    f'{LABEL}=("@status" "{DIGEST_HEADER}" "content-type" "signature";req;key="{REQUEST_LABEL}");created;tag="{TAG}"'
)
"""What a request says that wants a signed answer."""
_ASKED: Final = f';tag="{TAG}"'.encode()
_INPUT = re.compile(
    rf'{LABEL}=(?P<params>\((?P<covered>[^()]+)\);created=[0-9]{{1,15}};keyid="(?P<keyid>[0-9a-f]{{64}})";tag="{TAG}")'
)


@dataclass(frozen=True)
class AnswerParts:
    """What of an answer is signed. `headers` has lower-case names; repeated fields are joined with ", ". `asked`: the Signature field of
    the request, as it was sent."""

    status: int
    headers: Mapping[str, str]
    asked: str


def asks(accept_signature: bytes) -> bool:
    """Whether this Accept-Signature field wants a signature of ours."""
    return _ASKED in accept_signature


def signed_fields(parts: AnswerParts, digest: bytes, *, key: RequestKey, created: int) -> dict[str, str]:
    """What an answer has to have besides its headers. `digest`: SHA-256 of its body."""
    stated = {DIGEST_HEADER: content_digest(digest)}
    components = dict(_components(AnswerParts(parts.status, {**parts.headers, **stated}, parts.asked)))
    params = f'({" ".join(components)});created={created};keyid="{key.fingerprint}";tag="{TAG}"'
    signature = key.sign_http(signature_base(components.items(), params))
    return {**stated, "signature-input": f"{LABEL}={params}", "signature": signature_field(LABEL, signature)}


def signer_of(headers: Mapping[str, str], what: str) -> str:
    """Fingerprint of the key that an answer says it is signed by: not believed yet. `what`: the answer, in errors.

    Raises:
        VerificationFailed: codes `answer-not-signed`, `answer-signature` (another form than ours).
    """
    return _stated(headers, what)["keyid"]


def check_answer(parts: AnswerParts, content: bytes, *, key: bytes, what: str) -> None:
    """This answer to this request is of the key's holder. `key`: raw Ed25519, 32 bytes. `what`: the answer, in errors.

    Raises:
        VerificationFailed: codes `answer-not-signed`, `answer-signature`.
    """
    stated = _stated(parts.headers, what)
    if stated["keyid"] != fingerprint(key):
        raise _wrong(f"{what} under another's signature", expected=fingerprint(key), got=stated["keyid"])
    signature, digest = signature_in(parts.headers["signature"], LABEL), digest_in(parts.headers.get(DIGEST_HEADER, ""))
    if signature is None or digest is None:
        raise _wrong(f"{what} with a Signature or Content-Digest that is none of ours")
    components = dict(_components(parts))
    if stated["covered"] != " ".join(components):
        raise _wrong(f"{what} under a signature over other parts", expected=" ".join(components), got=stated["covered"])
    try:
        verify_http(key, signature_base(components.items(), stated["params"]), signature)
    except VerificationFailed:
        raise _wrong(f"{what}, but that is not what was signed, or it was the answer to another request") from None
    if digest != sha256(content):
        raise _wrong(f"{what} with another body than the signed one", expected=digest.hex(), got=sha256(content).hex())


def _components(parts: AnswerParts) -> Iterator[tuple[str, str]]:
    yield '"@status"', str(parts.status)
    for name in (DIGEST_HEADER, *FIELDS):
        if name in parts.headers:
            yield f'"{name}"', parts.headers[name].strip()
    yield f'"signature";req;key="{REQUEST_LABEL}"', parts.asked.removeprefix(f"{REQUEST_LABEL}=")


def _stated(headers: Mapping[str, str], what: str) -> re.Match[str]:
    if "signature-input" not in headers or "signature" not in headers:
        raise VerificationFailed(
            f"{what} without its signature, so anybody on the way may have said that", code="answer-not-signed",
            remedy="End TLS inside the orchestrator's CVM, and see who else answers at that address. An orchestrator of a release that "
            "signs no answers has to be updated first.",
        )  # fmt: skip
    stated = _INPUT.fullmatch(headers["signature-input"])
    if stated is None:
        raise _wrong(f"{what} with a Signature-Input that is none of ours")
    return stated


def _wrong(detail: str, expected: str | None = None, got: str | None = None) -> VerificationFailed:
    return VerificationFailed(
        detail, code="answer-signature", expected=expected, got=got,
        remedy="Believe nothing of it: somebody between here and the orchestrator changed it, or put another in its place.",
    )  # fmt: skip
