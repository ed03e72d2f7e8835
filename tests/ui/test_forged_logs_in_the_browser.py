"""Logs that no honest orchestrator writes, judged by the browser and by `gput receipts verify`: what one refuses the other does, too."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import cbor2
import pytest

from gput.receipts import verify
from shared.attestation.approvals import LABEL
from shared.canonical import cbor_bytes
from shared.claims.manifest import Validation
from shared.claims.receipt import Accumulated, DeviceStatement, Mixed, Receipt
from shared.errors import BadRequest, VerificationFailed
from shared.protocol.log_events import event_bytes
from tests.gput.forged_logs import A, Again, B, C, Ended, Forger, Happened, Visited
from tests.gput.test_receipts_agreed import word
from tests.ui.test_receipts_in_the_browser import CHECK

ENOUGH = Happened("stopped_early", {"reason": "x", "position": 1})
RULE = Validation(dataset="ab" * 32, records=10, every_visits=1, max_loss_increase=0.125)
ONE, TWO, THREE = Visited(1), Visited(2), Visited(3)
ROSE = {"validation_before": 1.0, "validation_after": 101.0}
Make = Callable[[Forger], dict[str, Any]]


@pytest.fixture(scope="module")
def forger(tmp_path_factory: pytest.TempPathFactory) -> Forger:
    """A session of two rounds that releases its last model, and no loss."""
    changes = {"rounds": 2, "validation": RULE.model_dump(), "privacy_floor": 1000}
    folder = tmp_path_factory.mktemp("forged")
    with ThreadPoolExecutor(1) as beside:  # what drives the browser has an event loop in this thread
        return beside.submit(Forger, folder, **changes).result()


def log_of(*leaves: Any) -> Make:
    return lambda forger: forger.bundle(*leaves)


def _approvals(*made: Callable[[Forger], dict[str, Any]], leaves: tuple[Any, ...] = (ONE,)) -> Make:
    return lambda forger: forger.bundle(*leaves, approvals=[one(forger) for one in made])


def _word(holder: str, label: str | None = None, **said: Any) -> Callable[[Forger], dict[str, Any]]:
    return lambda forger: word(forger, holder, **said) | ({"decision": label} if label else {})


def _headed(**said: Callable[[int], Any]) -> Make:
    """A log whose signed head is told otherwise than it was signed."""

    def make(forger: Forger) -> dict[str, Any]:
        bundle = forger.bundle(ONE)
        return bundle | {"head": bundle["head"] | {name: other(bundle["head"][name]) for name, other in said.items()}}

    return make


def deep(levels: int) -> Any:
    """A value of so many lists, each within the next."""
    return [deep(levels - 1)] if levels else 1


def _spaced(forger: Forger) -> dict[str, Any]:
    """An approval as JSON in another form than its one."""
    item = forger._approval(C)
    document = b64decode(item["document"]).replace(b',"records":', b', "records":')
    signature = forger.keys[C].sign(LABEL, document)
    return item | {"document": b64encode(document).decode(), "signature": b64encode(signature).decode()}


def restored(position: float) -> Happened:
    return Happened("restored", {"checkpoint": "c", "position": position, "from": 3, "boot_counter": 2})


def best(at: int) -> Happened:
    return Happened("best_chosen", lambda forger: {"position": 1, "model": forger.states[at].model})


HONEST: dict[str, Make] = {
    "the plan as it is": log_of(ONE, TWO, THREE, Visited(4)),
    "stops passed over": log_of(TWO, Visited(6)),
    "a restore": log_of(ONE, TWO, restored(1), Visited(2, start=0), THREE),
    "enough learnt, and lost again": log_of(ONE, TWO, ENOUGH, restored(1), Visited(2, start=0)),
    "a time that no calendar has": log_of(Visited(1, told={"closed_at": 2**53 - 1})),
    "events of other kinds": log_of(Happened("recalled", {}), ONE),
    "an event as deep as there may be any": log_of(ONE, Happened("recalled", {"why": deep(62)})),
    "a veto behind an approval": _approvals(
        _word(A),
        _word(B),
        _word(C),
        _word(C, "veto", decision="veto", dataset_root=None, records=None, record_bytes=None),
    ),
}
FORGED: dict[str, tuple[Make, str]] = {
    "losses told under the floor": (log_of(Visited(1, told={"losses_released": True})), "privacy floor"),
    "a stop twice": (log_of(ONE, ONE, TWO), "no stop, visit or epoch has two receipts"),
    "a receipt twice, behind a restore": (log_of(ONE, TWO, restored(1), Again(1)), "visit v_"),
    "a restore to further on than can be counted": (log_of(ONE, restored(2**53)), "does not say how many stops lie behind it"),
    "a restore to a fraction": (log_of(ONE, TWO, restored(1.0), Visited(2, start=0)), "does not say how many stops lie behind it"),
    "a restore to further on than the log": (log_of(ONE, restored(5), TWO), "stop 2 lies behind already"),
    "another holder's stop": (log_of(ONE, Visited(2, A)), "another holder's stop"),
    "a stop that no plan has": (log_of(Visited(7)), "the plan has no such stop"),
    "a stop before the first": (log_of(Visited(0, C)), "the plan has no such stop"),
    "another round's": (log_of(Visited(1, told={"round": 2})), "round"),
    "a restore that goes back further than it says": (
        log_of(ONE, TWO, THREE, restored(3), Visited(4, start=0)), "starts from an earlier model",
    ),
    "a best model that nobody agreed on": (log_of(ONE, TWO, THREE, best(0)), "chooses a best model"),
    "every visit the first": (log_of(ONE, Visited(2, said={"first_step": 0})), "does not count on from the steps"),
    "a first visit that is not": (log_of(Visited(1, said={"first_step": 4})), "does not count on from the steps"),
    "a visit behind the end": (log_of(ONE, Happened("completed", {}), TWO), "comes after completed"),
    "a visit though enough was learnt": (log_of(ONE, ENOUGH, TWO), "comes after stopped_early"),
    "a loss that rose too far": (log_of(Visited(1, told=ROSE)), "held-out loss"),
    "another number of records": (log_of(Visited(1, said={"records": 10**9})), "other records than planned"),
    "another number of records approved": (
        log_of(Visited(1, said={"dataset_records": 999})), "another number of records than its holder approved",
    ),
    "gradients kept that nobody agreed to": (
        log_of(Visited(1, said={"accumulated": Accumulated(before="1" * 64, after="2" * 64, batches=4)})), "nobody agreed on",
    ),
    "a mixture that nobody agreed to, of as many steps as it likes": (
        log_of(Visited(1, said={"mixed": Mixed(round=1, seed=0, visits=1, records=8000, first=0), "steps": 1000})), "nobody agreed on",
    ),
    "the end of a tour that nobody agreed to": (log_of(ONE, Ended()), "tour's end: in a session that has none"),
    "an event of another session": (log_of(ONE, event_bytes("s_aaaaaaaaaaaaaaaa", "restored", {"position": 0})), "of another session"),
    "an event under another label": (
        lambda forger: forger.bundle(ONE, cbor_bytes(["gput/log-event/9", forger.session, "recalled", {}])), "not the form of one",
    ),
    "an event that is deeper": (log_of(ONE, Happened("recalled", {"why": deep(63)})), "nested too deep"),
    "an event that names a detail in bytes": (log_of(ONE, Happened("recalled", {b"why": 1})), "a key that is no text"),
    "an event of what is not defined": (log_of(ONE, Happened("recalled", {"why": cbor2.undefined})), "a simple value that nothing"),
    "a head of half a second later": (_headed(time=lambda at: at + 0.5), "the tree head is signed"),
    "a head whose time is a text": (_headed(time=str), "the tree head is signed"),
    "a head whose size is a truth": (_headed(size=bool), "the tree head is signed"),
    "too few approved": (_approvals(_word(A), _word(B)), "2 approved where the manifest asks for 3"),
    "a refusal relabelled": (
        _approvals(_word(A), _word(B), _word(C, "approve", decision="refuse", reason="no")), "signed another decision",
    ),
    **{
        f"an approval whose {name} is {value!r}": (_approvals(_word(A), _word(B), _word(C, **{name: value})), "states no dataset as")
        for name, value in [
            ("records", None), ("records", True), ("records", 0), ("records", "1000"), ("record_bytes", None), ("dataset_root", None),
            ("dataset_root", "0"), ("at", 1.5), ("at", None), ("at", -1),
        ]
    },
    "a refusal that states a dataset": (
        _approvals(_word(A), _word(B), _word(C), _word(C, "refuse", decision="refuse")), "states no dataset as",
    ),
    "an approval in another form": (_approvals(_word(A), _word(B), _spaced), "not in its one form"),
    "two datasets of one holder": (_approvals(_word(A), _word(B), _word(C), _word(C, dataset_root="0" * 64)), "approved two datasets"),
}  # fmt: skip


def held_by_gput(forger: Forger, bundle: dict[str, Any]) -> bool:
    """Whether it holds. Every refusal is one of its own."""
    try:
        verify(forger.saved(bundle))
    except (VerificationFailed, BadRequest):
        return False
    return True


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_log_holds_in_both(page: Any, forger: Forger, name: str) -> None:
    bundle = HONEST[name](forger)
    assert (page.evaluate(CHECK, bundle), held_by_gput(forger, bundle)) == ([], True)


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_log_is_refused_by_both(page: Any, forger: Forger, name: str) -> None:
    make, named = FORGED[name]
    bundle = make(forger)
    found = page.evaluate(CHECK, bundle)
    assert any(named in line for line in found), found
    assert not held_by_gput(forger, bundle)


def _counts(claim: type[Receipt | DeviceStatement]) -> list[str]:
    return [name for name, field in claim.model_fields.items() if field.annotation is int]


@pytest.mark.filterwarnings(
    "ignore:Pydantic serializer warnings"
)  # it is written as it is, which is what the test is about
@pytest.mark.parametrize("number", [2**53, 2**64 - 1, -1, 1.0, 4.0])
def test_what_no_reader_can_count_is_refused_by_both_and_named(page: Any, forger: Forger, number: float) -> None:
    told, said = _counts(Receipt), _counts(DeviceStatement)
    assert ("closed_at" in told, "steps" in said) == (True, True)
    forged = [(name, Visited(1, told={name: number})) for name in told]
    forged += [(name, Visited(1, said={name: number})) for name in said if name not in told]
    for name, leaf in forged:
        bundle = forger.bundle(leaf)
        (found,) = page.evaluate(CHECK, bundle)
        assert f"{name} is no count that every reader can hold" in found
        assert not held_by_gput(forger, bundle), name


VERDICT = """async bundle => {
  const { verifiedLog } = await import("/ui/common/receipts_view.js");
  const place = document.createElement("div");
  await verifiedLog(place, async () => bundle, "gput receipts verify");
  return place.querySelector("#verdict")?.textContent ?? place.textContent;
}"""


@pytest.mark.parametrize(
    ("closed_at", "said"), [(2**53 - 1, "VERIFIED HERE"), (2**53, "closed_at is no count"), (2**64 - 1, "closed_at is no")]
)  # fmt: skip
def test_a_verdict_is_drawn_whatever_time_a_receipt_tells(page: Any, forger: Forger, closed_at: int, said: str) -> None:
    assert said in page.evaluate(VERDICT, forger.bundle(Visited(1, told={"closed_at": closed_at})))
