"""Signatures, digests and the log as docs/formats.md words them, written from that page alone. Must not know the product's code."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import cbor2
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey


def cbor(value: Any) -> bytes:
    """CBOR[…] and CBOR{…} of the page."""
    return cbor2.dumps(value, canonical=True)


def json_of(value: Any) -> bytes:
    """JSON(…) of the page, for texts and whole numbers under names in ASCII."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def fingerprint(public: bytes) -> str:
    return hashlib.sha256(public).hexdigest()


# ------------------------------------------------------------ labelled


def labelled(label: str, document: bytes) -> bytes:
    """What every detached signature is over."""
    return label.encode() + b"\x00" + document


def holds(public: bytes, message: bytes, signature: bytes) -> bool:
    """Ed25519."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except InvalidSignature:
        return False
    return True


def offer_signed(one_time_key: bytes, offer: bytes, sealed: bytes) -> bytes:
    """What the orchestrator signs of a visit's offer; all as bytes, out of base64."""
    return b"gput/offer\x00" + hashlib.sha512(b"gput/offer\x00" + one_time_key + offer + sealed).digest()


def dealt_signed(share_key: bytes, sealed: bytes) -> bytes:
    """What it signs of a dealt share."""
    return b"gput/dealt-share\x00" + hashlib.sha512(b"gput/dealt-share\x00" + share_key + sealed).digest()


def report_data(label: str, document: bytes) -> bytes:
    """The 64 bytes that a quote covers."""
    return hashlib.sha512(label.encode() + b"\x00" + document).digest()


def gpu_nonce(challenge: bytes, th2: bytes, epoch: int, signing_key: bytes) -> bytes:
    own = hashlib.sha256(signing_key).digest()
    return hashlib.sha256(cbor(["gput/gpu-nonce", challenge, th2, epoch, own])).digest()


def registers(events: Sequence[dict[str, Any]]) -> dict[int, bytes]:
    """What a machine's registers hold after these events {register, type, content}."""
    found = dict.fromkeys(range(4), bytes(48))
    for event in events:
        digest = hashlib.sha384(b"gput/event\x00" + json_of(event)).digest()
        found[event["register"]] = hashlib.sha384(found[event["register"]] + digest).digest()
    return found


# ------------------------------------------------------------ COSE


def cose(payload: bytes, algorithm: int, kid: bytes, sign: Callable[[bytes], bytes]) -> bytes:
    """A whole COSE_Sign1: RFC 9052 4.4 over the page's two headers."""
    protected = cbor({1: algorithm, 4: kid})
    signature = sign(cbor(["Signature1", protected, b"", payload]))
    return cbor(cbor2.CBORTag(18, [protected, {}, payload, signature]))


# ------------------------------------------------------------ the log


def leaf_hash(leaf: bytes) -> bytes:
    return hashlib.sha256(b"\x00" + leaf).digest()


def _node(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\x01" + left + right).digest()


def _left(size: int) -> int:
    """The largest power of two below `size`."""
    power = 1
    while power * 2 < size:
        power *= 2
    return power


def tree_root(hashes: Sequence[bytes]) -> bytes:
    if len(hashes) < 2:
        return hashes[0] if hashes else hashlib.sha256(b"").digest()
    left = _left(len(hashes))
    return _node(tree_root(hashes[:left]), tree_root(hashes[left:]))


def root_by_path(hashed: bytes, index: int, size: int, path: Sequence[bytes]) -> bytes:
    """The root that an audit path (RFC 9162 2.1.3) leads a leaf's hash to."""
    if size == 1:
        assert not path
        return hashed
    left = _left(size)
    if index < left:
        return _node(root_by_path(hashed, index, left, path[:-1]), path[-1])
    return _node(path[-1], root_by_path(hashed, index - left, size - left, path[:-1]))


def tree_head(session: str, size: int, root: bytes, time: int) -> bytes:
    """What is signed of a log's head, label and all."""
    return labelled("gput/tree-head", cbor(["gput/tree-head/1", session, size, root, time]))


def event_leaf(session: str, kind: str, details: dict[str, Any]) -> bytes:
    return cbor(["gput/log-event/1", session, kind, details])


# ------------------------------------------------------------ HTTP


def http_base(covered: Sequence[tuple[str, str]], parameters: str) -> bytes:
    """An RFC 9421 signature base: (component, value) in the order in which they are covered."""
    lines = [f'"{name}": {value.strip()}' for name, value in covered]
    return "\n".join([*lines, f'"@signature-params": {parameters}']).encode()


def http_parameters(names: Sequence[str], created: int, nonce: bytes, keyid: str) -> str:
    """What stands behind `gput=` in Signature-Input."""
    covered = " ".join(f'"{name}"' for name in names)
    return f'({covered});created={created};nonce="{b64(nonce)}";keyid="{keyid}";tag="gput/1"'


def answer_base(
    status: int, headers: Mapping[str, str], body: bytes, request_signature: str, created: int, keyid: str
) -> tuple[str, bytes]:
    """What stands behind `gput-answer=` in an answer's Signature-Input, and its base. `request_signature`: the request's whole field."""
    fields = {name: headers[name] for name in ("content-type", "etag", "location", "retry-after") if name in headers}
    covered = {
        f'"{name}"': value
        for name, value in {"@status": str(status), "content-digest": body_digest(body), **fields}.items()
    }
    covered['"signature";req;key="gput"'] = request_signature.removeprefix("gput=")
    parameters = f'({" ".join(covered)});created={created};keyid="{keyid}";tag="gput-answer/1"'
    lines = [*(f"{name}: {value}" for name, value in covered.items()), f'"@signature-params": {parameters}']
    return parameters, "\n".join(lines).encode()


def body_digest(body: bytes) -> str:
    """Content-Digest."""
    return f"sha-256=:{b64(hashlib.sha256(body).digest())}:"
