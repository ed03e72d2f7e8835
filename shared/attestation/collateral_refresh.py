"""When collateral is fetched: for a genuine machine whose own is missing or about to end, not again at once. Knows no HTTP and no clock.

Fetching is apart from verifying: it happens before, changes only what is at hand, and when it fails the verification says what is missing.
"""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path

from shared.attestation.collateral import Collateral
from shared.attestation.collateral_folder import write_bundle
from shared.attestation.collateral_store import CollateralStore
from shared.attestation.cpu_trust import CpuRoots
from shared.attestation.one_time_keys import decoded
from shared.attestation.pck import PckIdentity
from shared.attestation.quote import parse_quote
from shared.errors import GputError, VerificationFailed
from shared.wire.collateral import Authority, CollateralSource
from shared.wire.visit import Evidence

AHEAD_S = 86_400.0
AGAIN_S = 60.0


class CollateralKeeper:
    """Keeps a store current from a source of one's own; without a source it does nothing.

    Args:
        folder: where what was fetched is kept for the next start; None: in memory only.
    """

    def __init__(
        self, store: CollateralStore, roots: CpuRoots, source: CollateralSource | None, folder: Path | None = None
    ) -> None:
        self.store, self._roots, self._source, self._folder = store, roots, source, folder
        self._asked: dict[tuple[str, Authority], float] = {}

    async def prepare(self, evidence: Evidence, at: float) -> str | None:
        """Have collateral for the machine behind this evidence, if it can be had; why not, for the log, or None.

        Never raises: evidence that is not genuine fetches nothing, and what is missing the verification will say.
        """
        if self._source is None or evidence.kind != "tdx-quote":
            return None  # AMD's machines have none
        try:
            pck = self._machine(evidence)
            if self._has(pck, at) or not self._may_ask(pck, at):
                return None
            answers = await self._source.fetch(pck.fmspc, _authority(pck))
            bundle = Collateral.from_answers(answers)
            self.store.learn(bundle)
            if self._folder is not None:
                write_bundle(self._folder, f"{pck.fmspc}-{_authority(pck)}", bundle)
        except GputError as error:
            return f"{error.code}: {error.detail}"
        return None

    async def endorsed(self, evidence: Evidence, at: float) -> Evidence:
        """A TDX quote of one's own together with the collateral that counts now, where a real machine made it without any: who verifies
        receipts years later has no other. As it is where there is none, or some came along.
        """
        if evidence.kind != "tdx-quote" or evidence.endorsements:
            return evidence
        await self.prepare(evidence, at)
        try:
            found = self.store.choose(self._machine(evidence), None, at)
        except GputError:
            return evidence  # whoever verifies it says what is missing
        return evidence.model_copy(update={"endorsements": b64encode(found.source.document()).decode()})

    def _machine(self, evidence: Evidence) -> PckIdentity:
        return self.store.identify(
            parse_quote(decoded(evidence.quote)).signature.certification, self._roots.certificates
        )

    def _has(self, pck: PckIdentity, at: float) -> bool:
        try:
            best = self.store.choose(pck, None, at)
            best.check_platform(pck)
        except VerificationFailed:
            return False
        return best.current(at) and best.current(at + AHEAD_S)

    def _may_ask(self, pck: PckIdentity, at: float) -> bool:
        # Two machines of one FMSPC may have their certificates from either authority, and need a list each.
        what = pck.fmspc, _authority(pck)
        last = self._asked.get(what)
        if last is not None and 0 <= at - last < AGAIN_S:
            return False
        self._asked[what] = at
        return True


def _authority(pck: PckIdentity) -> Authority:
    return "processor" if "Processor" in pck.authority.subject.rfc4514_string() else "platform"
