"""Detached EAT bundles in NVIDIA's form, signed by a key of the tests' own. Knows no reader."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

KEY = ec.derive_private_key(7, ec.SECP384R1())
HEADER = {"kid": "EMULATED", "alg": "ES384"}


def part(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def token(claims: dict[str, Any], header: dict[str, Any] = HEADER) -> str:
    signed = f"{part(json.dumps(header).encode())}.{part(json.dumps(claims).encode())}"
    r, s = decode_dss_signature(KEY.sign(signed.encode(), ec.ECDSA(hashes.SHA384())))
    return f"{signed}.{part(r.to_bytes(48, 'big') + s.to_bytes(48, 'big'))}"


def bundle(at: int, *, accepted: bool = True, swapped: bool = False, **platform: Any) -> bytes:
    """Valid for an hour from `at` on. `swapped`: the submodule is not the one that the platform token names."""
    time = {"iat": at, "nbf": at, "exp": at + 3600}
    gpu = token({**time, "ueid": "1", "x-nvidia-gpu-driver-version": "580.0"})
    named = {"GPU-0": ["DIGEST", ["SHA-256", hashlib.sha256(gpu.encode()).hexdigest()]]}
    claims = {**time, "x-nvidia-overall-att-result": accepted, "submods": named, **platform}
    shown = token({**time, "ueid": "2"}) if swapped else gpu
    return json.dumps([["JWT", token(claims)], {"GPU-0": shown}]).encode()
