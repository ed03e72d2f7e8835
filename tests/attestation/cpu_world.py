"""An emulated machine for tests: its enclave, its trust material, and quotes with chosen faults. Knows no test."""

from __future__ import annotations

import base64
import json
import warnings
from dataclasses import replace
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from gpu_agent.platform.pki import QuotingKeys, make_quoting_keys
from gpu_agent.platform.quoting_enclave import Cvm, QuotingEnclave, _sign
from shared.attestation.cpu_verifier import CpuPolicy, CpuReference, CpuRoots, CpuTrust
from shared.attestation.quote import HEADER, TdReport, TdxQuote, pack_header, pack_quote, parse_body, parse_quote
from shared.canonical import sha256, sha384
from shared.crypto.secret import Secret
from shared.errors import EmulationWarning
from shared.wire.visit import Evidence

AT = 1_790_000_000.0
ORCHESTRATOR_CODE, HOLDER_CODE = sha384(b"orchestrator's code"), sha384(b"holder's code")


class Machine:
    """One installation with an orchestrator and two holders."""

    def __init__(self, name: str = "test") -> None:
        self.keys: QuotingKeys = make_quoting_keys(name, AT)
        cvms = [
            Cvm("orchestrator", ORCHESTRATOR_CODE),
            Cvm("holder-north", HOLDER_CODE),
            Cvm("holder-south", HOLDER_CODE),
        ]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", EmulationWarning)
            self.enclave = QuotingEnclave(self.keys, Secret(sha256(name.encode())), {cvm.name: cvm for cvm in cvms})
        self.roots = CpuRoots.load(self.keys.root)
        reference = {
            "gpu": {},
            "cvms": {
                "orchestrator": {"mr_td": ORCHESTRATOR_CODE.hex()},
                "data_holder": {"mr_td": HOLDER_CODE.hex()},
            },
        }
        self.reference = CpuReference.load(json.dumps(reference).encode())
        self.policy = CpuPolicy(roots=("EMULATED",), allow_emulated=True)

    def trust(self, **changes: Any) -> CpuTrust:
        return replace(CpuTrust(self.roots, self.reference, self.policy), **changes)

    def quote(self, report_data: bytes, cvm: str = "orchestrator") -> TdxQuote:
        return parse_quote(base64.b64decode(self.enclave.quote(cvm, report_data).quote))

    def requote(self, quote: TdxQuote, **body: bytes) -> bytes:
        """The same quote over a changed body, signed by the enclave's own attestation key: genuine, but of another VM."""
        return resign(quote, self.enclave._key, replace(quote.body, **body))

    def pck(self) -> ec.EllipticCurvePrivateKey:
        key = serialization.load_pem_private_key(self.keys.pck_key, None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        return key


def resign(quote: TdxQuote, key: ec.EllipticCurvePrivateKey, body: TdReport) -> bytes:
    signed = pack_header() + body.pack()
    return pack_quote(signed, replace(quote.signature, signature=_sign(key, signed)))


def evidence(quote: bytes) -> Evidence:
    return Evidence(quote=base64.b64encode(quote).decode())


def body_of(quote: TdxQuote) -> TdReport:
    return parse_body(quote.signed[HEADER.size :])
