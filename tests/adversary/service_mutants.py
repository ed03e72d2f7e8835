"""Services and verifiers with one defence taken away at a time: what each patch leaves out. Knows their rooms, no attack and no test."""

from __future__ import annotations

import hmac
import subprocess
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi import APIRouter, Response

import data_holder.commitments
import gpu_agent.api
import gpu_agent.workload.executor
import orchestrator.runner.heads
import orchestrator.visits.training
import shared.claims.graph
import shared.service.journal
from data_holder.once_at_a_time import OnceAtATime
from gpu_agent.compute import process
from gpu_agent.hardware import copy_engine, state
from gput.believed import Believed
from orchestrator import parties
from orchestrator.gpu_session import opening
from orchestrator.gpu_session.checkpoints import Checkpoints
from orchestrator.runner import recovery, session_runner
from orchestrator.sessions import facts
from orchestrator.visits import granting
from orchestrator.visits.run import Run
from shared.attestation import channel, gpu_examination, key_rotations, offers, tdx_verifier
from shared.attestation.gpu_policy import GpuPolicy
from shared.claims.operators import ALLOWED
from shared.crypto import schedule
from shared.names import RegionKind
from shared.protocol.session import SessionFact
from shared.service import signed_answers
from shared.service.answer_signing import SignedAnswers
from shared.service.forgotten import Forgotten
from shared.service.replay import ReplayWindow
from shared.service.signatures import VERIFIED
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


def anybody_rotates_a_key(patch: Patch) -> None:
    patch.setattr(key_rotations, "verify", lambda *_: None)


def replaced_keys_are_believed(patch: Patch) -> None:
    patch.setattr(parties, "_came_from", lambda *_: True)


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


def forgotten_is_unseen(patch: Patch) -> None:
    patch.setattr(Forgotten, "may_hold", lambda self, expires: False)


def manifests_count_again(patch: Patch) -> None:
    patch.setattr(OnceAtATime, "other", lambda self, session: None)


def rows_are_believed(patch: Patch) -> None:
    blind = SimpleNamespace(digest=hmac.digest, compare_digest=lambda *_: True)
    patch.setattr(shared.service.journal, "hmac", blind)


def heads_are_not_compared(patch: Patch) -> None:
    patch.setattr(orchestrator.runner.heads, "contradiction", lambda *_: None)


def read_back_is_not_compared(patch: Patch) -> None:
    sabotage.read_back_is_not_compared(patch, None)  # type: ignore[arg-type]  # it needs no theatre


def every_result_is_accepted(patch: Patch) -> None:
    patch.setattr(orchestrator.visits.training, "_due", lambda _: False)


def every_operator_is_allowed(patch: Patch) -> None:
    class Everything(dict[str, str]):
        def __contains__(self, name: object) -> bool:
            return name in ALLOWED or (str(name).startswith("aten.") and str(name).count(".") == 2)

        def __missing__(self, name: str) -> str:
            return "anything"

    for room in (shared.claims.graph, gpu_agent.workload.executor):
        patch.setattr(room, "ALLOWED", Everything(ALLOWED))


def salts_are_known(patch: Patch) -> None:
    patch.setattr(data_holder.commitments, "dataset_salt", lambda _, *names: schedule.dataset_salt(bytes(32), *names))


def lost_visits_count_as_done(patch: Patch) -> None:
    """After a reset the session goes on from where it had stood, with the initial model."""
    honest = recovery.restore

    async def restore(run: Run, *rest: Any) -> None:
        stood = run.state.position

        def new_fact(fact: Any, *by: Any, **body: Any) -> Any:
            return facts.new_fact(fact, *by, **(body | ({"position": stood} if fact is SessionFact.RESTORED else {})))

        with pytest.MonkeyPatch.context() as here:
            here.setattr(recovery, "new_fact", new_fact)
            await honest(run, *rest)

    patch.setattr(session_runner, "restore", restore)
    patch.setattr(Checkpoints, "usable", lambda *_: None)


def memory_is_shown(patch: Patch) -> None:
    honest = gpu_agent.api._public

    def public(units: Any) -> APIRouter:
        router = honest(units)

        @router.get("/{gpu}/memory")
        async def memory(gpu: str) -> Response:
            device = units[gpu].device
            place = device._state.regions.all(RegionKind.MODEL)[0]
            return Response(bytes(device._hbm.view(place.address, place.length)))

        return router

    patch.setattr(gpu_agent.api, "_public", public)


def cut_off_visits_are_skipped(patch: Patch) -> None:
    honest = recovery.abandoned
    patch.setattr(recovery, "abandoned", lambda *what, **how: honest(*what, **(how | {"again": False})))


def visit_keys_hang_on_the_resume_secret(patch: Patch) -> None:
    """Both ends make them of what is kept at rest."""
    kept: list[bytes] = []

    def resume_secret(*of: Any) -> bytes:
        kept.append(schedule.resume_secret(*of))
        return kept[-1]

    for room in (opening, state):
        patch.setattr(room, "resume_secret", resume_secret)
    for room in (granting, copy_engine):
        patch.setattr(room, "visit_key", lambda _, context: schedule.visit_key(kept[-1], context))


def whoever_answers_is_believed(patch: Patch) -> None:
    async def checked(*_: Any) -> None:
        return None

    patch.setattr(Believed, "_check", checked)


def answers_name_no_request(patch: Patch) -> None:
    """Both ends leave the request's own signature out of what is signed."""
    honest = signed_answers._components
    patch.setattr(signed_answers, "_components", lambda parts: list(honest(parts))[:-1])


def answers_to_anybody_are_signed(patch: Patch) -> None:
    honest = SignedAnswers.__call__

    async def call(self: SignedAnswers, scope: Any, receive: Any, send: Any) -> None:
        scope[VERIFIED] = dict(scope["headers"]).get(b"signature", b"").decode()
        await honest(self, scope, receive, send)

    patch.setattr(SignedAnswers, "__call__", call)


BLIND = """
import runpy, sys
from gpu_agent.workload import mixture, training
mixture.check_records = training.check_records = lambda *_: None
sys.argv[0] = "compute"
runpy.run_module("gpu_agent.compute", run_name="__main__")
"""


def records_are_not_checked(patch: Patch) -> None:
    """Compute processes are started without the check."""
    module, start = ["-m", "gpu_agent.compute"], subprocess.Popen

    def blinded(command: list[str], **options: Any) -> Any:
        assert command[1:3] == module, "this is how compute is started"
        return start([command[0], "-c", BLIND, *command[3:]], **options)

    patch.setattr(process, "subprocess", SimpleNamespace(**vars(subprocess) | {"Popen": blinded}))
