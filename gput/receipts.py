"""Receipts in a folder: fetch them, and verify them offline with nothing but the published keys and the trust folder.

Knows the API's views and the formats of `shared`; asks no service while it verifies.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from base64 import b64decode
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from gput.client import AsyncClient
from shared.attestation.channel import gpu_evidence_digest, report_data
from shared.attestation.collateral_store import CollateralStore
from shared.attestation.cpu_trust import CpuPolicy, CpuReference, CpuRoots, CpuTrust
from shared.attestation.cpu_verifier import verify_cpu_evidence
from shared.attestation.gpu_verifier import GpuReference, GpuRoots, verify_gpu_evidence, verify_statement_key
from shared.attestation.nonces import gpu_nonce
from shared.attestation.session_events import check_session_event
from shared.canonical import cbor_value, json_value, sha256
from shared.claims.manifest import EvidencePolicy
from shared.claims.receipt import DeviceStatement, Receipt
from shared.crypto.cose import Verifier, peek_kid, verify1
from shared.crypto.tree_head import TreeHead, verify_tree_head
from shared.errors import BadRequest, GputError, VerificationFailed
from shared.protocol.merkle import leaf_hash, root
from shared.wire.visit import Evidence, GpuEvidence, RuntimeData

BUNDLE = "bundle.json"
MAX_BUNDLE_BYTES = 1 << 30  # about 9 KB per visit: a session of 100 000 visits
PARTS = {"session": str, "head": dict, "leaves": list, "keys": list, "manifest": dict}
COSE_SIGN1_TAG = b"\xd2"
TRUST = ("gpu-roots.pem", "cpu-roots.pem", "reference.json")
COLLATERAL = "collateral"  # signed statements about machines; those of the time also lie beside the quotes themselves


async def save(client: AsyncClient, session: str, folder: Path, trust: Path) -> None:
    """Fetch log, keys and manifest of a session into `folder`, with a copy of the trust folder's public files."""
    head = await client.get(f"sessions/{session}/log/head")
    bundle = {
        "session": session,
        "head": head,
        "leaves": await client.items(f"sessions/{session}/log/leaves"),
        "keys": await client.items(f"sessions/{session}/keys"),
        "manifest": await client.get(f"sessions/{session}/manifest"),
    }
    await asyncio.to_thread(_store, bundle, folder, trust)


def _store(bundle: dict[str, Any], folder: Path, trust: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in TRUST:
        shutil.copyfile(trust / name, folder / name)
    if (trust / COLLATERAL).is_dir():
        shutil.copytree(trust / COLLATERAL, folder / COLLATERAL, dirs_exist_ok=True)
    partial = folder / (BUNDLE + ".part")
    partial.write_text(json.dumps(bundle, indent=1) + "\n")
    partial.replace(folder / BUNDLE)


@dataclass(frozen=True)
class Signer:
    """One life's keys, believed: the orchestrator's session signing key and the device's statement key."""

    signing_key: bytes
    statement_key: Verifier
    gpu_evidence: str
    device: str
    backend: str


@dataclass(frozen=True)
class Verified:
    """The outcome: how many leaves and receipts hold, and what they add up to."""

    session: str
    leaves: int
    receipts: int
    backends: tuple[str, ...]
    holders: dict[str, int]
    records: int
    root: str


def verify(folder: Path) -> Verified:
    """Verify everything in `folder`, in numbered steps.

    1. every key: quote over its runtime data, GPU evidence and its nonce, statement key under the device's leaf;
    2. the log: leaves give the signed root; 3. every receipt: orchestrator's and device's signatures; 4. receipt and statement
    say the same; 5. manifest digest; 6. the chain of model digests has no gap.

    Raises:
        VerificationFailed: naming the leaf or key and the check. BadRequest: the folder is incomplete.
    """
    bundle = read_bundle(folder)
    signers = _signers(folder, bundle)
    leaves = _leaves(bundle)
    tree_root = _check_log(bundle, leaves, signers)
    with _named("manifest"):
        manifest = sha256(b64decode(bundle["manifest"]["document"], validate=True)).hex()
    receipts: list[tuple[Receipt, DeviceStatement]] = []
    for index, leaf in enumerate(leaves):
        if is_receipt(leaf):
            with _named(f"leaf {index}"):
                receipts.append(_check_receipt(leaf, signers, bundle["session"], manifest))
    _check_models(receipts)
    holders: dict[str, int] = {}
    for receipt, _ in receipts:
        holders[receipt.holder] = holders.get(receipt.holder, 0) + 1
    return Verified(
        session=bundle["session"],
        leaves=len(leaves),
        receipts=len(receipts),
        backends=tuple(sorted({statement.backend for _, statement in receipts})),
        holders=holders,
        records=sum(statement.records for _, statement in receipts),
        root=tree_root,
    )


class _named:  # noqa: N801  # reads as a word at the call
    """Says which part an error is about."""

    def __init__(self, part: str) -> None:
        self._part = part

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, GputError):
            raise VerificationFailed(
                f"{self._part}: {error.detail}", code=error.code, expected=error.expected, got=error.got
            ) from None
        if isinstance(error, (ValidationError, KeyError, TypeError, ValueError)):
            raise VerificationFailed(f"{self._part}: malformed ({type(error).__name__})", code="malformed") from None


def is_receipt(leaf: bytes) -> bool:
    """Whether a leaf is a receipt (tagged COSE_Sign1, RFC 9052 section 2) and no event (a map): its bytes say so, not the bundle."""
    return leaf[:1] == COSE_SIGN1_TAG


def _leaves(bundle: dict[str, Any]) -> list[bytes]:
    """The leaves' bytes; their labels must say what the bytes are."""
    found = []
    for index, meta in enumerate(bundle["leaves"]):
        with _named(f"leaf {index}"):
            leaf = b64decode(meta["leaf"], validate=True)
            label, says = (meta["index"], meta["kind"]), (index, "receipt" if is_receipt(leaf) else "event")
            if label != says:
                raise VerificationFailed("labelled as another", code="mismatch", expected=str(says), got=str(label))
            found.append(leaf)
    return found


def read_bundle(folder: Path) -> dict[str, Any]:
    remedy = "Fetch one with `gput session receipts`."
    try:
        bundle = json_value((folder / BUNDLE).read_bytes(), MAX_BUNDLE_BYTES)
    except OSError:
        raise BadRequest(f"{folder} holds no {BUNDLE}", remedy=remedy, code="no-receipts") from None
    except BadRequest as error:
        raise BadRequest(f"{folder / BUNDLE}: {error.detail}", remedy=remedy, code="bad-receipts") from None
    if not isinstance(bundle, dict) or not all(isinstance(bundle.get(name), kind) for name, kind in PARTS.items()):
        raise BadRequest(f"{folder / BUNDLE} is incomplete", remedy=remedy, code="bad-receipts")
    return bundle


# --------------------------------------------------------------------- step 1


def _signers(folder: Path, bundle: dict[str, Any]) -> dict[str, Signer]:
    """Believed keys by SHA-256 of the runtime data that introduced them."""
    roots = CpuRoots.load(folder / "cpu-roots.pem")
    collateral = CollateralStore.load(folder / COLLATERAL, roots.certificates, archive=True)
    cpu = CpuTrust(roots, CpuReference.load(folder / "reference.json"), CpuPolicy(), collateral)
    gpu = GpuRoots.load(folder / "gpu-roots.pem"), GpuReference.load(folder / "reference.json")
    with _named("manifest"):
        policies = json_value(b64decode(bundle["manifest"]["document"]))
    found = {}
    for number, item in enumerate(bundle["keys"]):
        with _named(f"key {number}"):
            runtime_bytes = b64decode(item["runtime_data"])
            found[sha256(runtime_bytes).hex()] = _signer(item, runtime_bytes, cpu, gpu, policies)
    return found


def _signer(
    item: dict[str, Any],
    runtime_bytes: bytes,
    cpu: CpuTrust,
    gpu: tuple[GpuRoots, GpuReference],
    policies: dict[str, Any],
) -> Signer:
    runtime = RuntimeData.model_validate(json_value(runtime_bytes))
    evidence = GpuEvidence.model_validate(item["gpu_evidence"])
    agreed = EvidencePolicy.model_validate(policies["orchestrator_evidence"])
    # Certificates, collateral and lists are judged at the time the keys were made, not when somebody looks.
    at = float(runtime.not_after - agreed.max_age_s)
    cvm = verify_cpu_evidence(
        Evidence.model_validate(item["evidence"]), report_data=report_data("orchestrator", runtime_bytes),
        role="orchestrator", roots=cpu.roots, reference=cpu.reference, at=at, collateral=cpu.collateral,
        policy=CpuPolicy.of(agreed, allow_emulated=True),
    )  # fmt: skip
    check_session_event(cvm, runtime)
    if gpu_evidence_digest(evidence) != runtime.gpu_evidence or item["signing_key"] != runtime.signing_key:
        raise VerificationFailed("the quote speaks for other GPU evidence or another key", code="gpu-evidence-mismatch")
    signing_key = bytes.fromhex(runtime.signing_key)
    nonce = gpu_nonce(bytes.fromhex(evidence.challenge), bytes.fromhex(evidence.th2), evidence.epoch, signing_key)
    device = verify_gpu_evidence(
        b64decode(evidence.report), evidence.chain, nonce=nonce, roots=gpu[0], reference=gpu[1],
        allowed_roots=tuple(policies["gpu_evidence"]["roots"]), allow_emulated=True, at=at,
    )  # fmt: skip
    statement_key = verify_statement_key(device, b64decode(evidence.statement_key))
    return Signer(signing_key, statement_key, str(runtime.gpu_evidence), device.device, device.backend.value)


# --------------------------------------------------------------------- step 2


def _check_log(bundle: dict[str, Any], leaves: list[bytes], signers: dict[str, Signer]) -> str:
    head = bundle["head"]
    with _named("log head"):
        key = bytes.fromhex(head["key"])
        if key not in {signer.signing_key for signer in signers.values()}:
            raise VerificationFailed("signed by a key that no attested orchestrator has", code="unknown-key")
        tree = TreeHead(bundle["session"], head["size"], bytes.fromhex(head["root"]), int(head["time"]))
        verify_tree_head(tree, key, b64decode(head["signature"]))
        computed = root([leaf_hash(leaf) for leaf in leaves])
        if len(leaves) != tree.size or computed != tree.root:
            raise VerificationFailed(
                "the leaves do not give the signed root",
                code="log-mismatch",
                expected=tree.root.hex(),
                got=computed.hex(),
            )
    return tree.root.hex()


# ----------------------------------------------------------------- steps 3 to 6


def _check_receipt(
    leaf: bytes, signers: dict[str, Signer], session: str, manifest: str
) -> tuple[Receipt, DeviceStatement]:
    receipt = Receipt.model_validate(cbor_value(_payload(leaf, signers)))
    signer = signers.get(receipt.orchestrator_runtime_data)
    if signer is None:
        raise VerificationFailed("the receipt names runtime data that no key introduces", code="unknown-key")
    verify1(leaf, signer.signing_key)
    statement = DeviceStatement.model_validate(cbor_value(verify1(receipt.statement, signer.statement_key)))
    expected = {
        "session": (session, receipt.session, statement.session),
        "manifest": (manifest, receipt.manifest),
        "visit": (receipt.visit, statement.visit),
        "epoch": (receipt.epoch, statement.epoch),
        "holder": (receipt.holder, statement.holder),
        "gpu evidence": (signer.gpu_evidence, receipt.gpu_evidence),
        "device": (signer.device, statement.device),
        "backend": (signer.backend, statement.backend),
    }
    for name, values in expected.items():
        if len(set(values)) != 1:
            raise VerificationFailed(f"{name} differs", code="mismatch", expected=str(values[0]), got=str(values[1:]))
    if statement.scrubbed_bytes < statement.length:
        raise VerificationFailed("fewer bytes scrubbed than were written", code="scrub")
    if receipt.fence_epoch <= receipt.epoch:
        raise VerificationFailed("the fence is not after the visit", code="fence")
    return receipt, statement


def _payload(leaf: bytes, signers: dict[str, Signer]) -> bytes:
    """The payload under whichever believed key verifies it; the receipt's own words then choose the key again."""
    kid = peek_kid(leaf)
    for signer in signers.values():
        if kid in (signer.signing_key, sha256(signer.signing_key)):
            return verify1(leaf, signer.signing_key)
    raise VerificationFailed("signed by a key that no attested orchestrator has", code="unknown-key")


def _check_models(receipts: list[tuple[Receipt, DeviceStatement]]) -> None:
    """Each visit starts from the model the last committed one left; a visit after a restore repeats an earlier model."""
    known: set[str] = set()
    for receipt, statement in receipts:
        if known and statement.model_before not in known:
            raise VerificationFailed(
                f"visit {receipt.visit} starts from a model that no earlier receipt left", code="model-gap"
            )
        known |= {statement.model_before}
        if receipt.outcome == "closed":
            known |= {statement.model_after}
