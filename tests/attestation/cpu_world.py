"""An emulated machine for tests: its maker, its enclave, its trust material, and quotes with chosen faults. Knows no test."""

from __future__ import annotations

import base64
import json
import warnings
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from pydantic import ValidationError

from gpu_agent.platform.api import Enclave
from gpu_agent.platform.collateral_maker import make_collateral, sign_raw
from gpu_agent.platform.pki import Maker, QuotingKeys, certificate_pem, make_maker
from gpu_agent.platform.quote_packing import pack_quote, pack_signed
from gpu_agent.platform.quoting_enclave import Cvm, QuotingEnclave
from shared.attestation.collateral import Collateral
from shared.attestation.collateral_store import CollateralStore
from shared.attestation.cpu_verifier import CpuPolicy, CpuReference, CpuRoots, CpuTrust
from shared.attestation.quote import TdReport, TdxQuote, parse_quote
from shared.attestation.session_events import SESSION_EVENT, session_event
from shared.canonical import json_value, sha256, sha384
from shared.claims.event_log import Entry, Event, EventLog, replay_events
from shared.crypto.secret import Secret
from shared.errors import EmulationWarning
from shared.wire.visit import Evidence, RuntimeData

AT = 1_790_000_000.0
ORCHESTRATOR_CODE, HOLDER_CODE = sha384(b"orchestrator's code"), sha384(b"holder's code")
CODES = {"orchestrator": ORCHESTRATOR_CODE, "holder-north": HOLDER_CODE, "holder-south": HOLDER_CODE}


class Machine:
    """One installation with an orchestrator and two holders; `version` of its quotes."""

    def __init__(self, name: str = "test", version: int = 4) -> None:
        self.maker: Maker = make_maker(name, AT)
        self.keys: QuotingKeys = self.maker.machine(AT)
        self.collateral: Collateral = make_collateral(self.maker, AT)
        self.version = version
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", EmulationWarning)
            self.enclave = QuotingEnclave(self.keys, Secret(sha256(name.encode())), version)
        self.root_pem = certificate_pem(self.maker.root.certificate)
        self.root_der = self.maker.root.certificate.public_bytes(serialization.Encoding.DER)
        self.roots = CpuRoots.load(self.root_pem)
        reference = {
            "gpu": {},
            "cvms": {
                "orchestrator": {"mr_td": ORCHESTRATOR_CODE.hex()},
                "data_holder": {"mr_td": HOLDER_CODE.hex()},
            },
        }
        self.reference = CpuReference.load(json.dumps(reference).encode())
        self.policy = CpuPolicy(roots=("EMULATED",), allow_emulated=True)
        self.store = self.holding(self.collateral)

    def holding(self, *bundles: Collateral) -> CollateralStore:
        """A verifier's store with these bundles."""
        store = CollateralStore(self.roots.certificates)
        for bundle in bundles:
            store.learn(bundle)
        return store

    def trust(self, **changes: Any) -> CpuTrust:
        return replace(CpuTrust(self.roots, self.reference, self.policy, self.store), **changes)

    def raw(self, report_data: bytes, cvm: str = "orchestrator", **rtmrs: Any) -> bytes:
        """A quote of that CVM."""
        return self.enclave.quote(Cvm(cvm, CODES[cvm], **rtmrs), report_data)

    def quote(self, report_data: bytes, cvm: str = "orchestrator") -> TdxQuote:
        return parse_quote(self.raw(report_data, cvm))

    def evidence(self, cvm: str, report_data: bytes, events: Iterable[Event] = ()) -> Evidence:
        """Evidence of that CVM after it measured these events."""
        measured = tuple(events)
        quote = self.raw(report_data, cvm, rtmrs=replay_events(measured))
        return evidence(quote, EventLog(entries=tuple(Entry(event=event) for event in measured)) if measured else None)

    def requote(self, quote: TdxQuote, **body: bytes) -> bytes:
        """The same quote over a changed body, signed by the enclave's own attestation key: genuine, but of another VM."""
        return resign(quote, self.enclave._key, replace(quote.body, **body))

    def pck(self) -> ec.EllipticCurvePrivateKey:
        key = serialization.load_pem_private_key(self.keys.pck_key, None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        return key


def measured(runtime_data: bytes) -> tuple[Event, ...]:
    """The event that a VM measures before it sends this runtime data; none for data that are none."""
    try:
        content = session_event(RuntimeData.model_validate(json_value(runtime_data)))
    except ValidationError:
        return ()
    return (Event(register=3, type=SESSION_EVENT, content=content),)


def resign(quote: TdxQuote, key: ec.EllipticCurvePrivateKey, body: TdReport) -> bytes:
    signed = pack_signed(quote.version, body)
    return pack_quote(signed, replace(quote.signature, signature=sign_raw(key, signed)))


def evidence(quote: bytes, log: EventLog | None = None, endorsements: bytes = b"") -> Evidence:
    return Evidence(
        quote=base64.b64encode(quote).decode(),
        endorsements=base64.b64encode(endorsements).decode(),
        event_log=base64.b64encode(log.to_bytes()).decode() if log is not None else "",
    )


class LocalProvider:
    """A CVM's path to a manufactured installation's enclave, without HTTP."""

    def __init__(self, enclave: Enclave, name: str) -> None:
        self.enclave, self.name = enclave, name
        self.launch = enclave.cvms.launch(name, enclave.cvms.measure(name), enclave.cvms.launches(name))

    async def quote(self, report_data: bytes) -> Evidence:
        return self.enclave.evidence(self.name, self.launch, report_data)

    async def relaunch(self) -> bool:
        return False

    async def registers(self) -> dict[int, bytes]:
        return dict(enumerate(self.enclave.cvms.running(self.name, self.launch).rtmrs))

    async def extend(self, register: int, digest: bytes, before: bytes) -> None:
        self.enclave.cvms.extend(self.name, self.launch, register, digest, before)

    async def derived_key(self, label: str) -> Secret:
        raise NotImplementedError(label)

    async def aclose(self) -> None:
        return None
