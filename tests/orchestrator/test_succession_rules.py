"""When one manifest may go on with the model of another: each rule by its own finding, and manifests from before there were successors."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from gput.succession import changes, rounds_behind, successor_of
from orchestrator.itinerary import Itinerary
from orchestrator.sessions.state import SessionState
from orchestrator.sessions.succession import at_rest
from shared.canonical import json_value
from shared.claims.faults import ManifestRefused
from shared.claims.manifest import Contributor, EvidencePolicy, Manifest, OutputPolicy, Predecessor, RosterEntry
from shared.claims.privacy import Privacy
from shared.claims.succession import gone, may_have_successor, newcomers, succession_findings
from shared.claims.training import SGD, Schedule, TrainingOptions
from shared.errors import BadRequest, Conflict
from shared.names import SessionPhase
from tests.orchestrator.orchestrator_samples import EMULATED, key, manifest

HOLDERS = ("h0", "h1", "h2")
KEYS = {f"h{n}": key(n + 1).fingerprint for n in range(5)}
BOTH = OutputPolicy(release_to=("owner", "holders"))


def entry(name: str, fingerprint: str | None = None) -> RosterEntry:
    return RosterEntry(holder=name, key=fingerprint or KEYS[name], evidence=EMULATED)


def says(old: Manifest, *holders: str, records: int = 16) -> Predecessor:
    return Predecessor(
        session="s_aaaaaaaaaaaaaaaa", manifest=old.digest().hex(), model="1" * 64, optimiser="2" * 64, step=6, log_size=3,
        log_root="3" * 64, contributors=tuple(Contributor(holder=h, key=KEYS[h], records=records) for h in holders or HOLDERS),
    )  # fmt: skip


def first(**more: Any) -> Manifest:
    return manifest(**({"continuation": "remaining"} | more))


def second(old: Manifest, *names: str, **more: Any) -> Manifest:
    """h3 in the place of h1."""
    roster = more.pop("roster", tuple(entry(name) for name in names or ("h0", "h3", "h2")))
    return Manifest.model_validate(old.model_dump() | {"roster": roster, "predecessor": says(old)} | more)


def found(old: Manifest, new: Manifest, moved: tuple[str, ...] = ()) -> list[tuple[str, str]]:
    return [(one.field, one.code) for one in succession_findings(old, new, moved)]


def test_an_older_manifest_keeps_its_bytes() -> None:
    old = manifest()
    text = json_value(old.canonical())
    assert not {"predecessor", "continuation"} & text.keys()
    assert Manifest.model_validate(text).digest() == old.digest()
    assert old.digest() != first().digest()


WIDER = [("output.release_to", "successor-wider")]
GONE = [("roster", "continuation-refused")]
RULES: dict[str, tuple[dict[str, Any], dict[str, Any], list[tuple[str, str]]]] = {
    "agreed": ({}, {}, []),
    "refused": ({"continuation": "refused"}, {}, [("predecessor", "continuation-refused"), *[]]),
    "nothing said": ({"continuation": None}, {}, GONE),
    "nothing said, and all are there": ({"continuation": None}, {"roster": tuple(map(entry, (*HOLDERS, "h3")))}, []),
    "all are there, and a quorum does without": (
        {"continuation": None}, {"roster": tuple(map(entry, (*HOLDERS, "h3"))), "quorum": 3}, GONE,
    ),
    "the same name, another key": (
        {"continuation": None}, {"roster": (entry("h0"), entry("h1", KEYS["h4"]), entry("h2"))}, GONE,
    ),
    "released to more roles": ({}, {"output": BOTH}, WIDER),
    "released to a holder that none of those gone knew": ({"output": BOTH}, {"output": BOTH}, WIDER),
    "released to another key under a name that was known": (
        {"output": BOTH}, {"output": BOTH, "roster": (entry("h0"), entry("h1", KEYS["h4"]), entry("h2"))}, WIDER,
    ),
    "released to those that were known": ({"output": BOTH}, {"output": BOTH, "roster": (entry("h0"), entry("h2"))}, []),
    "released to fewer": ({"output": BOTH}, {"output": OutputPolicy()}, []),
    "released to more, and all agree": ({}, {"output": BOTH, "roster": tuple(map(entry, (*HOLDERS, "h3")))}, []),
    "another GPU policy": (
        {}, {"gpu_evidence": EvidencePolicy(roots=("EMULATED", "NVIDIA"))}, [("gpu_evidence", "successor-wider")],
    ),
    "another orchestrator's": (
        {}, {"orchestrator_evidence": EvidencePolicy(roots=("EMULATED",), max_age_s=60)},
        [("orchestrator_evidence", "successor-wider")],
    ),
    "another program": ({}, {"program": "b" * 96}, [("program", "successor-differs")]),
    "another optimiser": (
        {}, {"training": TrainingOptions(optimizer=SGD())}, [("training.optimizer", "successor-differs")],
    ),
    "a moment less": (
        {"training": TrainingOptions(optimizer=SGD(momentum=0.9))}, {"training": TrainingOptions(optimizer=SGD())},
        [("training.optimizer", "successor-differs")],
    ),
    "another rate": ({}, {"training": TrainingOptions(batch_size=2, seed=9)}, []),
    "gradients that add up": (
        {"accumulate": "tour"}, {"accumulate": None}, [("predecessor.accumulate", "unsupported-feature")],
    ),
    "privacy": (
        {"privacy": Privacy(max_grad_norm=1.0, noise_multiplier=1.0, delta=1e-5)}, {"privacy": None},
        [("predecessor.privacy", "unsupported-feature")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", RULES)
def test_each_rule_finds_its_own(case: str) -> None:
    old, new, expected = RULES[case]
    before = first(**old)
    refused = [one for one in found(before, second(before, **new)) if case != "refused" or one[0] == "predecessor"]
    assert refused == expected


def test_who_changed_its_key_by_its_own_signature_is_not_gone() -> None:
    old = first(continuation=None)
    new = second(old, roster=(entry("h0"), entry("h1", KEYS["h4"]), entry("h2")))
    assert [one.holder for one in gone(new)] == ["h1"]
    assert found(old, new, ("h1",)) == []
    assert found(old, new, ("h0", "h2")) == GONE
    # Somebody else is gone: whoever rotated its key is still one that could be read in the roster, another under its name is not.
    agreed = first(output=BOTH)
    without = second(agreed, roster=(entry("h0", KEYS["h4"]), entry("h2")))
    assert (newcomers(agreed, without), newcomers(agreed, without, ("h0",))) == (("h0",), ())
    assert (found(agreed, without, ("h0",)), found(agreed, without)) == ([], WIDER)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("initial_weights", "a" * 64),
        ("accumulate", "tour"),
        ("privacy", Privacy(max_grad_norm=1.0, noise_multiplier=1.0, delta=1e-5)),
    ],
)
def test_what_cannot_go_with_a_predecessor_is_refused_by_the_manifest_itself(field: str, value: Any) -> None:
    with pytest.raises(ValidationError, match="predecessor: "):
        second(first(), **{field: value})


def test_a_contributor_stands_there_once() -> None:
    old = first()
    with pytest.raises(ValidationError, match="named twice"):
        second(old, predecessor=says(old, "h0", "h0"))


def test_steps_and_records_go_on() -> None:
    old = first(rounds=4)
    new = second(old, rounds=2)
    itinerary = Itinerary(new)
    assert new.optimiser_steps == itinerary.total_steps == 6 + 2 * itinerary.steps_per_round
    begin = {itinerary.visit(index).holder: itinerary.visit(index).cursor.start for index in (1, 2, 3)}
    assert begin == {"h0": 16, "h3": 0, "h2": 16}
    assert [itinerary.visit(index).first_step for index in (1, 2)] == [6, 6 + itinerary.visit(1).steps]


@pytest.mark.parametrize("position", range(8))
def test_records_behind_a_stop_are_where_the_next_visit_begins(position: int) -> None:
    itinerary = Itinerary(first(rounds=4, visit_order="shuffled"))
    behind = itinerary.records_behind(position)
    for holder in HOLDERS:
        following = next(v for v in itinerary if v.index > position and v.holder == holder)
        assert behind[holder] == following.cursor.start


def _written(old: Manifest, rest: Predecessor | None = None, **options: Any) -> Manifest:
    return successor_of(old, rest or says(old), KEYS, **({"replace": {"h1": "h3"}} | options))


def test_the_command_writes_what_is_left_to_do() -> None:
    visit = first().steps_for("h0") * first().training.batch_size
    old = first(
        rounds=5, output=BOTH, quorum=3, training=TrainingOptions(batch_size=2, schedule=Schedule(kind="cosine"))
    )
    visit = old.steps_for("h0") * 2
    rest = says(old).model_copy(
        update={"contributors": tuple(Contributor(holder=h, key=KEYS[h], records=n * visit) for h, n in (("h0", 3), ("h1", 2), ("h2", 2)))}
    )  # fmt: skip
    assert rounds_behind(old, rest) == 2
    new = _written(old, rest)
    assert [one.holder for one in new.roster] == ["h0", "h3", "h2"]
    assert (new.rounds, new.training.schedule.total_steps) == (3, old.optimiser_steps)
    assert new.output.release_to == ("owner",), "whoever is gone did not know the newcomer"
    told = {field: (before, after) for field, before, after in changes(old, new)}
    assert told["roster.1.holder"] == ("h1", "h3")
    assert told["rounds"] == ("5", "3")
    assert told["output.release_to"] == ("owner, holders", "owner")
    assert "predecessor.session" not in told
    longer = _written(old, rest, rounds=9)
    assert (longer.rounds, longer.training.schedule.total_steps) == (9, None)
    fewer = _written(old, rest, replace={}, remove=["h1"])
    assert ([one.holder for one in fewer.roster], fewer.quorum) == (["h0", "h2"], 2)
    assert fewer.output == BOTH
    assert [one.holder for one in _written(old, rest, add=["h4"]).roster] == ["h0", "h3", "h2", "h4"]


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"replace": {"nobody": "h3"}}, "not-in-roster"),
        ({"replace": {"h1": "stranger"}}, "party-not-enrolled"),
        ({"replace": {"h1": "h2"}}, "party-exists"),
        ({"rounds": 0}, "no-rounds-left"),
    ],
)
def test_the_command_refuses_what_cannot_be(options: dict[str, Any], code: str) -> None:
    with pytest.raises(BadRequest) as caught:
        _written(first(), **options)
    assert caught.value.code == code


def test_the_command_releases_nothing_to_another_under_an_old_name() -> None:
    old, keys = first(output=BOTH), KEYS | {"h1": KEYS["h4"]}
    assert successor_of(old, says(old), keys).output.release_to == ("owner",)
    assert successor_of(old, says(old), keys, moved={"h1"}).output == BOTH


def test_the_command_refuses_what_nobody_agreed_to() -> None:
    with pytest.raises(ManifestRefused) as caught:
        _written(first(continuation=None))
    assert caught.value.code == "continuation-refused"


NEVER: dict[str, tuple[dict[str, Any], str, str]] = {
    "private": ({"privacy": Privacy(max_grad_norm=1.0, noise_multiplier=1.0, delta=1e-5)}, "unsupported-feature", "with privacy"),
    "of tours": ({"accumulate": "tour"}, "unsupported-feature", "with accumulate"),
    "refused": ({"continuation": "refused"}, "continuation-refused", "no session goes on"),
}  # fmt: skip


@pytest.mark.parametrize("case", NEVER)
def test_one_that_none_can_go_on_with_is_said_so_by_everybody(case: str) -> None:
    """The command ended in a fault of this program, and the orchestrator had offered what it then refused."""
    more, code, why = NEVER[case]
    old = first(**more)
    assert not may_have_successor(old)
    with pytest.raises(ManifestRefused, match=why) as caught:
        _written(old)
    assert caught.value.code == code
    state = SessionState("s_aaaaaaaaaaaaaaaa", old, "alice", "gpu-0")
    state.phase = SessionPhase.CANCELLED
    with pytest.raises(Conflict, match=why) as offered:
        at_rest(state, 3, lambda checkpoint: True)
    assert offered.value.code == code


def test_rounds_that_no_manifest_takes_are_refused_by_name() -> None:
    with pytest.raises(ManifestRefused, match="rounds: must be less than or equal to 1000000"):
        _written(first(), rounds=2_000_000)
