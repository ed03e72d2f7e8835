"""Papers that the orchestrator of these tests signs: offers that no honest sealer makes, and receipts with any field changed."""

from __future__ import annotations

from typing import Any

from shared.attestation.channel import build_orchestrator_runtime, report_data
from shared.canonical import cbor_bytes, json_bytes, sha256
from shared.canonical.zeros import zeros_digest
from shared.claims.receipt import DeviceStatement, Receipt
from shared.claims.visit import VisitTimers
from shared.crypto.cose import sign1
from shared.crypto.signing import PartyKey
from shared.crypto.visit_key import VisitKey
from shared.wire.visit import (
    ChannelOffer,
    GpuEvidence,
    OfferDocument,
    VisitOffer,
    VisitReport,
)
from tests.attestation.cpu_world import Machine, measured
from tests.data_holder.holder_world import (
    BUFFER_BYTES,
    DEVICE,
    NAME,
    PROGRAM,
    SESSION,
    STATEMENT_KEY,
    b64,
)


def forced_offer(made: OfferDocument, key: VisitKey, to: Any, signer: PartyKey) -> VisitOffer:
    """What an honest sealer would not seal, sealed and signed."""
    from shared.attestation import offers
    from shared.crypto.hpke import seal

    raw = json_bytes(made.model_dump(mode="json"))
    sealed = seal(to.public, key.to_bytes(), offers._seal_info(raw))
    signature = signer.sign(offers.LABEL, offers._transcript(to.document, raw, sealed))
    return VisitOffer(document=b64(raw), sealed=b64(sealed), signature=b64(signature))


def quoted_offer(machine: Machine, cvm: str, channel: str, gpu: GpuEvidence, fields: dict[str, Any]) -> ChannelOffer:
    """An orchestrator's proof over runtime data of these fields, quoted by that CVM after it measured them."""
    raw = build_orchestrator_runtime(**fields)
    quote = machine.evidence(cvm, report_data("orchestrator", raw), measured(raw))
    return ChannelOffer(channel=channel, runtime_data=b64(raw), evidence=quote, gpu_evidence=gpu)


def signed_receipt(document: OfferDocument, report: VisitReport, signer: PartyKey, changes: dict[str, Any]) -> bytes:
    """The receipt of a closed visit, signed by device and orchestrator; `changes` fall on statement and receipt by name."""
    grant = document.grant
    statement_fields: dict[str, Any] = {
        "device": DEVICE, "backend": "EMULATED", "boot_counter": 1, "life": 1, "session": SESSION, "visit": grant.visit,
        "epoch": grant.epoch, "holder": NAME, "travel_mode": grant.mode, "records": report.records, "length": report.length,
        "commitment": report.commitment, "dataset_root": grant.dataset_root,
        "dataset_records": grant.dataset_records, "program": PROGRAM, "model_before": "11" * 32, "model_after": "22" * 32,
        "first_step": 0, "steps": 5, "scrubbed_bytes": BUFFER_BYTES,
        "scrub_digest": zeros_digest(BUFFER_BYTES).hex(),
    }  # fmt: skip
    key = changes.pop("device_key", STATEMENT_KEY)
    stated = {name: changes.pop(name) for name in list(changes) if name in statement_fields}
    # A liar signs what no model of ours would let it write.
    statement = cbor_bytes(DeviceStatement(**statement_fields).model_copy(update=stated).model_dump(warnings=False))
    fields: dict[str, Any] = {
        "session": SESSION, "visit": grant.visit, "index": document.index, "round": document.round, "attempt": 1,
        "holder": NAME, "manifest": document.manifest, "dataset_root": grant.dataset_root,
        "epoch": grant.epoch, "fence_epoch": grant.epoch + 1,
        "outcome": "closed", "losses_released": False,
        "timers": VisitTimers(grab_gpu=0, import_key=0, buffer_read=0, gpu_write=0, export_key=0),
        "statement": sign1(statement, key, kid=sha256(key.public)),
    }  # fmt: skip
    receipt = Receipt.model_construct(**{**fields, **changes})
    return sign1(
        cbor_bytes(receipt.model_dump(mode="python", warnings=False)), signer, kid=bytes.fromhex(signer.fingerprint)
    )


def asked_by(owner: PartyKey | None, manifest: bytes) -> dict[str, str]:
    """What an inbox item says of a manifest, and of who signed it; an orchestrator of before says nothing of that (None)."""
    signature = {} if owner is None else {"owner_signature": b64(owner.sign("gput/manifest", manifest))}
    return {"manifest": b64(manifest), **signature, **({} if owner is None else {"owner_key": owner.public.hex()})}
