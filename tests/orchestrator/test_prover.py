"""What an orchestrator's own proofs take along for whoever verifies them later."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock, Mock

from orchestrator.holders import proofs
from orchestrator.holders.proofs import Prover
from shared.wire.visit import Evidence


async def test_a_proof_takes_along_what_its_quote_is_judged_by(monkeypatch: Any) -> None:
    """A real machine's quote comes without it, and nobody may have kept it when receipts are verified."""
    quoted, endorsed = Evidence(quote="AAAA"), Evidence(quote="AAAA", endorsements="BBBB")
    guest, keeper = AsyncMock(), Mock(endorsed=AsyncMock(return_value=endorsed))
    guest.quote.return_value = quoted
    manifest = SimpleNamespace(orchestrator_evidence=SimpleNamespace(max_age_s=60), digest=lambda: bytes(48))
    book = SimpleNamespace(state=SimpleNamespace(id="s_a", manifest=manifest))
    monkeypatch.setattr(proofs, "build_orchestrator_runtime", lambda **said: b"{}")
    monkeypatch.setattr(proofs, "session_event", Mock())
    monkeypatch.setattr(proofs.RuntimeData, "model_validate", Mock())
    prover = Prover(
        cast(Any, book),
        signing_key=Mock(),
        identity=Mock(),
        guest=guest,
        keeper=keeper,
        clock=lambda: 7.0,
        entropy=bytes,
    )
    proof = await prover.prove("city", "00" * 32, Mock())
    assert proof.evidence is endorsed
    keeper.endorsed.assert_awaited_once_with(quoted, 7.0)
