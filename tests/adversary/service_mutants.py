"""Services and verifiers with one defence taken away at a time: what each patch leaves out. Knows their rooms, no attack and no test."""

from __future__ import annotations

import hmac
from types import SimpleNamespace

import pytest

import orchestrator.runner.heads
import orchestrator.visits.training
import shared.service.journal
from shared.attestation import channel, gpu_examination, offers, tdx_verifier
from shared.attestation.gpu_policy import GpuPolicy
from shared.service.replay import ReplayWindow
from tests.laws import sabotage

Patch = pytest.MonkeyPatch


def report_data_is_not_compared(patch: Patch) -> None:
    patch.setitem(tdx_verifier._STEPS, "report-data", lambda _: None)


def gpu_nonces_are_not_compared(patch: Patch) -> None:
    patch.setattr(gpu_examination, "_check_nonce", lambda *_: None)


def every_gpu_mode_is_accepted(patch: Patch) -> None:
    patch.setattr(GpuPolicy, "check_mode", lambda *_: None)


def any_gpu_will_do(patch: Patch) -> None:
    patch.setattr(GpuPolicy, "check_device", lambda *_: None)


def debuggable_machines_are_accepted(patch: Patch) -> None:
    patch.setattr(tdx_verifier, "check_attributes", lambda *_: None)


def any_code_is_accepted(patch: Patch) -> None:
    patch.setattr(tdx_verifier, "check_measurements", lambda *_: None)


def any_orchestrator_is_accepted(patch: Patch) -> None:
    any_code_is_accepted(patch)


def proofs_are_for_anybody(patch: Patch) -> None:
    patch.setattr(channel, "_require", lambda *_: None)


def anybody_makes_offers(patch: Patch) -> None:
    patch.setattr(offers, "verify", lambda *_: None)


def requests_may_come_again(patch: Patch) -> None:
    async def remember(self: ReplayWindow, fingerprint: str, nonce: bytes, created: int) -> None:
        """Nothing."""

    patch.setattr(ReplayWindow, "remember", remember)


def rows_are_believed(patch: Patch) -> None:
    blind = SimpleNamespace(digest=hmac.digest, compare_digest=lambda *_: True)
    patch.setattr(shared.service.journal, "hmac", blind)


def heads_are_not_compared(patch: Patch) -> None:
    patch.setattr(orchestrator.runner.heads, "contradiction", lambda *_: None)


def read_back_is_not_compared(patch: Patch) -> None:
    sabotage.read_back_is_not_compared(patch, None)  # type: ignore[arg-type]  # it needs no theatre


def every_result_is_accepted(patch: Patch) -> None:
    patch.setattr(orchestrator.visits.training, "_due", lambda _: False)
