"""Evidence judged by the time that it was made at, by a verifier that has heard of more since."""

from __future__ import annotations

import base64
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gpu_agent.platform.collateral_maker import make_collateral
from shared.attestation import collateral_folder
from shared.attestation.collateral import Collateral
from shared.attestation.collateral_folder import read_folder, write_bundle
from shared.attestation.collateral_store import CollateralStore
from shared.attestation.cpu_verifier import verify_cpu_evidence
from shared.attestation.introductions import judged_at
from shared.errors import VerificationFailed
from tests.attestation.cpu_world import AT, evidence
from tests.attestation.test_cpu_verifier import DATA, MACHINE, RAW

DAY = 86_400.0
FIRST, NEXT = (make_collateral(MACHINE.maker, AT + day * DAY, valid_days=30) for day in (0, 29))


def judge(at: float, *, sent: Collateral | None, store: CollateralStore) -> None:
    verify_cpu_evidence(
        evidence(RAW, endorsements=sent.document() if sent is not None else b""), report_data=DATA, role="orchestrator",
        roots=MACHINE.roots, reference=MACHINE.reference, policy=MACHINE.policy, at=at, collateral=store,
    )  # fmt: skip


def test_collateral_of_its_time_that_came_along_counts_where_the_next_issue_is_known() -> None:
    """Receipts are verified for years; a verifier renews its own collateral every month."""
    judge(AT + DAY, sent=FIRST, store=MACHINE.holding(NEXT))
    judge(AT + 30.5 * DAY, sent=FIRST, store=MACHINE.holding(NEXT))  # by the next issue, which is out by then
    with pytest.raises(VerificationFailed, match="not valid yet"):
        judge(AT + DAY, sent=None, store=MACHINE.holding(NEXT))


def test_what_came_along_hides_no_news_that_was_out() -> None:
    news = make_collateral(MACHINE.maker, AT + DAY, valid_days=30, evaluation=99)
    judge(AT + 2 * DAY, sent=FIRST, store=MACHINE.holding(news))
    store = MACHINE.holding(news)
    with pytest.raises(VerificationFailed) as caught:
        store.check_rollback(MACHINE.holding(FIRST).choose(_pck(store), None, AT + 2 * DAY), AT + 2 * DAY)
    assert caught.value.code == "collateral-rollback"
    assert store.choose(_pck(store), FIRST, AT + 2 * DAY).tcb_info.tcb_evaluation_data_number == 99


def test_a_higher_evaluation_that_a_peer_brought_shuts_nobody_out_for_good() -> None:
    """Intel's early number beside the standard one, which everybody else has; in one's own folder it counts for ever."""
    early = make_collateral(MACHINE.maker, AT, valid_days=30, evaluation=2)
    standard = [make_collateral(MACHINE.maker, AT + day * DAY, valid_days=30) for day in (1, 31)]
    peers, own = CollateralStore(MACHINE.roots.certificates), MACHINE.holding(early)
    for store in (peers, own):
        judge(AT, sent=early, store=store)
        judge(AT + DAY, sent=standard[0], store=store)
        with pytest.raises(VerificationFailed, match="older than one seen before"):
            store.check_rollback(MACHINE.holding(standard[0]).choose(_pck(store), None, AT + DAY), AT + DAY)
    judge(AT + 31 * DAY, sent=standard[1], store=peers)
    with pytest.raises(VerificationFailed, match="older than one seen before"):
        judge(AT + 31 * DAY, sent=standard[1], store=own)


def _pck(store: CollateralStore) -> Any:
    return store.identify(MACHINE.keys.chain, MACHINE.roots.certificates)


def test_a_bundle_in_another_s_place_leaves_that_in_the_folder(tmp_path: Path) -> None:
    write_bundle(tmp_path, "machine", FIRST)
    write_bundle(tmp_path, "machine", FIRST)
    assert [path.name for path, _ in read_folder(tmp_path)] == ["machine.json"]
    write_bundle(tmp_path, "machine", NEXT)
    assert {bundle.fingerprint for _, bundle in read_folder(tmp_path)} == {FIRST.fingerprint, NEXT.fingerprint}
    judge(AT + DAY, sent=None, store=CollateralStore.load(tmp_path, MACHINE.roots.certificates))
    judge(AT + 31 * DAY, sent=None, store=CollateralStore.load(tmp_path, MACHINE.roots.certificates))


def test_of_earlier_bundles_so_many_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collateral_folder, "MAX_EARLIER", 2)
    issues = [make_collateral(MACHINE.maker, AT + day * DAY, valid_days=30) for day in range(5)]
    write_bundle(tmp_path, "machine-b", issues[0])  # another name's are its own
    for issue in issues:
        write_bundle(tmp_path, "machine", issue)
    kept = {bundle.fingerprint for path, bundle in read_folder(tmp_path) if path.name.startswith("machine.")}
    assert issues[4].fingerprint in kept
    assert len(kept) == 3
    assert (tmp_path / "machine-b.json").is_file()


@pytest.mark.parametrize("stated", ["1e999", "-1" + "0" * 400, "1" + "0" * 5000, '"soon"', "null"], ids=lambda s: s[:9])
def test_an_introduction_of_no_time_is_refused(stated: str) -> None:
    document = base64.b64encode(b'{"not_after":%s}' % stated.encode()).decode()
    with pytest.raises(VerificationFailed) as caught:
        judged_at(cast(Any, SimpleNamespace(runtime_data=document)), 10, 1e9, since=0)
    assert caught.value.code == "introduction-malformed"
