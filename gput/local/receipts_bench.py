"""A session's worth of receipts in a folder, for `gput bench receipts`: keys, evidence and signatures as the services make them.

Knows the services' own makers of evidence, statements, receipts, log and views; no network, no database and no training. What a visit
would have found out (digests, timers) is drawn at random.

A process of its own, because it is made of the services. Usage: python -m gput.local.receipts_bench WORK FOLDER COUNT.
"""

from __future__ import annotations

import asyncio
import secrets
import sys
import time
import warnings
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from gpu_agent.hardware.root_of_trust import RootOfTrust
from gpu_agent.platform.api import create_platform_app
from gpu_agent.platform.settings import PlatformSettings
from gput.local.installation import GPU, HolderSpec, Installation
from gput.local.job import EMULATED
from gput.receipt_folder import write
from orchestrator.api.log import head_view, leaf_view
from orchestrator.app import measured_guest
from orchestrator.ids import new_session_id, new_visit_id
from orchestrator.ledger.log import receipt_leaf, sign_head
from orchestrator.ledger.tree import MerkleTree
from orchestrator.settings import OrchestratorSettings
from orchestrator.visits.receipts import sign_receipt
from shared.attestation.approvals import LABEL
from shared.attestation.channel import build_orchestrator_runtime, gpu_evidence_digest, report_data
from shared.attestation.nonces import gpu_nonce
from shared.attestation.session_events import SESSION_EVENT, session_event
from shared.canonical import cbor_bytes, json_bytes, json_value, sha256
from shared.canonical.zeros import zeros_digest
from shared.claims.manifest import Manifest, RosterEntry
from shared.claims.receipt import DeviceStatement, Receipt
from shared.claims.training import AdamW, TrainingOptions
from shared.claims.visit import VisitTimers
from shared.crypto.signing import PartyKey
from shared.errors import EmulationWarning
from shared.protocol.log_events import is_receipt
from shared.service.evidence import EmulatedProvider
from shared.service.guest import Guest
from shared.service.logging import configure_logging
from shared.wire.spdm import get_measurements
from shared.wire.visit import Approval, GpuEvidence, RuntimeData, Signed

HOLDERS = ("hospital-a", "hospital-b", "hospital-c")
RECORDS, RECORD_BYTES, STEPS, BATCH = 1000, 65, 4, 8
PLATFORM, AGENT = "http://platform.local", "http://agent.local"


@dataclass(frozen=True)
class _Channel:
    """What a holder's receipts name of its channel."""

    view: dict[str, Any]
    runtime: str
    gpu_evidence: str


class Maker:
    """One session of three holders in an installation of its own below `folder`."""

    def __init__(self, folder: Path, visits: int) -> None:
        self.installation = Installation(folder, [HolderSpec(name, {}) for name in HOLDERS])
        self.installation.prepare()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", EmulationWarning)  # as Installation: people are told in words
            self.device = RootOfTrust.load(folder / "devices" / GPU, secrets.token_bytes)
        self.identity = PartyKey.load(folder / "orchestrator" / "identity.pem")
        self.signing_key = PartyKey.generate()
        self.visits, self.tree = visits, MerkleTree()
        self.session = new_session_id("owner", secrets.token_hex(16))
        self.keys = {name: self.installation.holder_key(name) for name in HOLDERS}
        self.manifest = self._manifest()
        self.digest = self.manifest.digest().hex()
        self.roots = {name: secrets.token_hex(32) for name in HOLDERS}

    async def make(self, target: Path) -> None:
        """Write the receipts folder `target`."""
        channels = await self._channels()
        bundle = self._bundle(channels, list(self._leaves(channels)))
        write(target, bundle, self.installation.trust)

    def _bundle(self, channels: dict[str, _Channel], leaves: list[bytes]) -> dict[str, Any]:
        """What is saved of a session whose log has these leaves, which lie in the tree already."""
        signed = sign_head(self.tree, self.session, self.signing_key, time.time())
        kinds = ["receipt" if is_receipt(leaf) else "event" for leaf in leaves]
        paths = [self.tree.inclusion(at, self.tree.size) for at in range(self.tree.size)]
        return {
            "session": self.session, "head": head_view(signed.columns()),
            "manifest": {"document": b64encode(self.manifest.canonical()).decode()},
            "approvals": [self._approval(name) for name in HOLDERS],
            "keys": [channel.view for channel in channels.values()],
            "leaves": [leaf_view(at, *found) for at, found in enumerate(zip(kinds, leaves, paths, strict=True))],
        }  # fmt: skip

    def _manifest(self) -> Manifest:
        roster = tuple(RosterEntry(holder=n, key=key.fingerprint, evidence=EMULATED) for n, key in self.keys.items())
        return Manifest(
            name="receipts, many of them", program=secrets.token_hex(48), roster=roster, gpu_evidence=EMULATED,
            orchestrator_evidence=EMULATED, rounds=-(-self.visits // len(HOLDERS)), steps_per_visit=STEPS,
            buffer_bytes=4096, privacy_floor=BATCH,
            training=TrainingOptions(optimizer=AdamW(lr=1e-3), batch_size=BATCH, seed=1),
        )  # fmt: skip

    def _approval(self, holder: str) -> dict[str, Any]:
        approval = Approval(
            session=self.session, holder=holder, manifest=self.digest, decision="approve", records=RECORDS,
            record_bytes=RECORD_BYTES, dataset_root=self.roots[holder], at=int(time.time()),
        )  # fmt: skip
        document, key = json_bytes(approval.model_dump(mode="json")), self.keys[holder]
        signed = Signed(document=b64encode(document).decode(), signature=b64encode(key.sign(LABEL, document)).decode())
        return {"holder": holder, "decision": "approve", "public_key": key.public.hex(), **signed.model_dump()}

    # -------------------------------------------------------------------- keys

    async def _channels(self) -> dict[str, _Channel]:
        """A quote and GPU evidence for each holder, as each asks for its own."""
        folder = self.installation.folder
        public, url = folder / "orchestrator" / "orchestrator.pub", f"{PLATFORM}/cvms/orchestrator"
        token = folder / "cvms" / "orchestrator.token"
        own = OrchestratorSettings.model_validate({
            "data_dir": folder / "orchestrator", "trust_dir": self.installation.trust, "allow_emulated": True,
            "owner_keys": folder / "owners", "agent_url": AGENT, "platform_url": PLATFORM, "evidence": f"emulated:{url}",
            "evidence_token_file": token,
        })  # fmt: skip
        platform = {"data_dir": folder, "agent_url": AGENT, "orchestrator_key": public}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", EmulationWarning)
            app = create_platform_app(PlatformSettings.model_validate(platform), PLATFORM)
            door = httpx2.ASGITransport(app=app)
            guest = measured_guest(own, EmulatedProvider(url, token.read_text(), transport=door))
        async with app.router.lifespan_context(app):
            try:
                return {name: await self._channel(name, guest) for name in HOLDERS}
            finally:
                await guest.aclose()

    async def _channel(self, holder: str, guest: Guest) -> _Channel:
        gpu = self._gpu_evidence()
        runtime = build_orchestrator_runtime(
            session=self.session, holder=holder, manifest=self.digest, peer_nonce=secrets.token_hex(32),
            nonce=secrets.token_hex(32), signing_key=self.signing_key.public, enrolled_key=self.identity.public,
            gpu_evidence=gpu, not_after=int(time.time() + EMULATED.max_age_s),
        )  # fmt: skip
        await guest.record(SESSION_EVENT, session_event(RuntimeData.model_validate(json_value(runtime))))
        evidence = await guest.quote(report_data("orchestrator", runtime), about=self.session)
        view = {
            "life": 1, "boot_counter": 1, "signing_key": self.signing_key.public.hex(), "holder": holder,
            "runtime_data": b64encode(runtime).decode(), "evidence": evidence.model_dump(mode="json"),
            "gpu_evidence": gpu.model_dump(mode="json"),
        }  # fmt: skip
        return _Channel(view, sha256(runtime).hex(), gpu_evidence_digest(gpu))

    def _gpu_evidence(self) -> GpuEvidence:
        challenge, th2 = secrets.token_bytes(32), secrets.token_bytes(48)
        report = self.device.report(get_measurements(gpu_nonce(challenge, th2, 0, self.signing_key.public)))
        return GpuEvidence(
            report=b64encode(report).decode(), chain=self.device.chain_pem, challenge=challenge.hex(), th2=th2.hex(),
            epoch=0, statement_key=b64encode(self.device.statement_certificate).decode(),
        )  # fmt: skip

    # ---------------------------------------------------------------- receipts

    def _leaves(self, channels: dict[str, _Channel]) -> Iterator[bytes]:
        """Receipts in the order of the visits, each appended to the tree."""
        model = secrets.token_hex(32)
        for index in range(1, self.visits + 1):
            holder, visit = HOLDERS[(index - 1) % len(HOLDERS)], new_visit_id(secrets.token_bytes)
            statement = self._statement(index, holder, visit, model)
            receipt = self._receipt(index, statement, channels[holder])
            cose = sign_receipt(receipt, self.signing_key)
            leaf = receipt_leaf(self.tree, self.session, cose, visit=visit, holder=holder, outcome=receipt.outcome)
            self.tree.append(bytes.fromhex(leaf.fact["hash"]))
            model = statement.model_after
            yield cose

    def _statement(self, index: int, holder: str, visit: str, model: str) -> DeviceStatement:
        return DeviceStatement(
            device=self.device.device, backend=self.device.backend.value, boot_counter=1, life=1, session=self.session,
            visit=visit, epoch=2 * index, holder=holder, records=STEPS * BATCH, length=STEPS * BATCH * RECORD_BYTES,
            commitment=secrets.token_hex(32), dataset_root=self.roots[holder], dataset_records=RECORDS,
            program=self.manifest.program, model_before=model, model_after=secrets.token_hex(32),
            first_step=(index - 1) * STEPS, steps=STEPS, scrubbed_bytes=self.manifest.buffer_bytes,
            scrub_digest=zeros_digest(self.manifest.buffer_bytes).hex(),
        )  # fmt: skip

    def _receipt(self, index: int, said: DeviceStatement, channel: _Channel) -> Receipt:
        timers = dict.fromkeys(VisitTimers.model_fields, 0.000123)
        return Receipt(
            session=self.session, visit=said.visit, index=index, round=(index - 1) // len(HOLDERS) + 1, attempt=1,
            holder=said.holder, manifest=self.digest, dataset_root=said.dataset_root, epoch=said.epoch,
            fence_epoch=said.epoch + 1, outcome="closed", gpu_evidence=channel.gpu_evidence,
            holder_runtime_data=secrets.token_hex(32), orchestrator_runtime_data=channel.runtime, losses_released=False,
            validation_before=2.5, validation_after=2.25, timers=VisitTimers(**timers), closed_at=int(time.time()),
            statement=self.device.sign_statement(cbor_bytes(said.model_dump(mode="python"))),
        )  # fmt: skip


if __name__ == "__main__":
    configure_logging("warning", "json")
    work, target, count = sys.argv[1:]
    asyncio.run(Maker(Path(work), int(count)).make(Path(target)))
