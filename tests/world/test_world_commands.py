"""The commands that look and steer, by hand against a world: ids by a beginning, dry runs, logs, timeline, smoke; each keeps its schema."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from gput.schemas import OUTPUTS
from gput.timeline import KINDS
from shared.crypto.signing import PartyKey
from tests.world.world import NewWorld
from tests.world.world_hand import Hand, at_hand, operator_at_hand


def held(path: str, text: str, lines: bool = False) -> Any:
    """What a command printed as JSON, which must be as its schema says."""
    value = [json.loads(line) for line in text.splitlines()] if lines else json.loads(text)
    TypeAdapter(OUTPUTS[path]).validate_python(value)
    return value


@pytest.fixture
async def done(hand: Hand) -> str:
    """A finished session of two rounds."""
    session = await hand.world.submit()
    await hand.world.completed(session)
    return session


async def test_looking_back_at_a_session(hand: Hand, done: str) -> None:
    short = done[:5]

    async def told(*words: str) -> str:
        code, out, said = await hand(*words)
        assert code == 0, said
        return out

    asked = ("--format", "json")
    for verb in ("list", "show", "visits", "steps", "logs", "timeline"):
        name = () if verb == "list" else (short,)
        value = held(f"session {verb}", await told("session", verb, *name, *asked))
        lines = await told("session", verb, *name, "--format", "jsonl")
        assert (
            held(f"session {verb}", lines, lines=True) == value
            if isinstance(value, list)
            else json.loads(lines) == value
        )
        assert await told("session", verb, *name)
    held("party list", await told("party", "list", *asked))
    held("attest session", await told("attest", "session", short[2:], *asked))
    assert done in await told("session", "wait", short)

    visits = held("session visits", await told("session", "visits", short, *asked))
    spans = held("session timeline", await told("session", "timeline", short, *asked))
    assert {span["visit"] for span in spans} == {visit["id"] for visit in visits}
    assert {span["kind"] for span in spans} == set(KINDS)
    assert all(span["party"] == (span["holder"] if span["kind"] == "provision" else "orchestrator") for span in spans)
    timed = sum(seconds for visit in visits for seconds in visit["durations"].values())
    assert sum(span["seconds"] for span in spans) == pytest.approx(timed)
    drawn = (await told("session", "timeline", short)).splitlines()
    assert [line.split()[0] for line in drawn[:-1]] == ["orchestrator", *dict.fromkeys(v["holder"] for v in visits)]
    assert "▓ provision" in drawn[-1]

    one = visits[0]["id"]
    whole = held("session logs", await told("session", "logs", short, *asked))
    assert (whole[0]["fact"], whole[-1]["fact"]) == ("submitted", "completed")
    of_one = held("session logs", await told("session", "logs", short, "--visit", one[:8], *asked))
    assert of_one == [event for event in whole if event.get("visit") == one] != []
    lines = (await told("session", "logs", short, "--visit", one)).splitlines()
    assert any("training closed" in line and visits[0]["holder"] in line for line in lines)
    assert any(line.strip().startswith("provision ") and line.endswith(" ms") for line in lines)
    assert held("session logs", await told("session", "watch", short), lines=True) == whole


async def test_looking_back_at_collected_tours(hand: Hand) -> None:
    """A tour's training is of no visit alone: events tell of it, and visits' logs with them."""
    session = await hand.world.submit(collect="tour")
    rounds = (await hand.world.completed(session))["rounds"]
    code, out, said = await hand("session", "timeline", session, "--format", "json")
    assert code == 0, said
    whole = [span for span in held("session timeline", out) if not span["visit"]]
    assert [span["step"] for span in whole] == ["train", "validate", "verdict", "epilogue"] * rounds
    assert {(span["party"], span["holder"]) for span in whole} == {("orchestrator", "")}
    visit = (await hand.world.visits(session))[0]["id"]
    code, out, said = await hand("session", "logs", session, "--visit", visit)
    assert code == 0, said
    lines = [line.strip() for line in out.splitlines()]
    assert any("training trained" in line for line in lines)
    (scrubbed,) = [at for at, line in enumerate(lines) if "training scrubbed" in line]
    assert [line.split()[0] for line in lines[scrubbed + 1 : scrubbed + 5]] == [
        "train",
        "validate",
        "verdict",
        "epilogue",
    ]


async def test_logs_follow_a_session_to_its_end(hand: Hand) -> None:
    session = await hand.world.submit()
    now, following = await asyncio.gather(
        hand("session", "logs", session, "--format", "json"), hand.world.completed(session)
    )
    assert (now[0], following["phase"]) == (0, "COMPLETED")
    code, out, _ = await hand("session", "logs", session, "-f")
    assert (code, "session completed" in out.splitlines()[-1]) == (0, True)


async def test_ids_by_a_beginning(hand: Hand, done: str) -> None:
    other = str((await hand.world.owner.submit(hand.world.material.manifest(name="other")))["id"])
    await hand.world.completed(other)
    code, _, said = await hand("session", "show", "s_")
    assert (code, "[ambiguous-id]" in said, done in said, other in said) == (2, True, True, True)
    code, _, said = await hand("session", "show", "s_1")  # no letter of an id
    assert (code, "[unknown-session]" in said, "gput session list" in said) == (2, True, True)
    code, _, said = await hand("session", "logs", done, "--visit", "v_1")
    assert (code, "[unknown-visit]" in said) == (2, True)


async def test_a_dry_run_changes_nothing(hand: Hand) -> None:
    world = hand.world
    manifest = hand.write("m.json", world.material.manifest().canonical())
    public = hand.write("city.pub", world.key("city").public_pem)
    code, out, said = await hand("party", "enrol", "city", public, "--dry-run", "--format", "json")
    assert (code, "city is new; nothing was done" in said) == (0, True)
    held("party enrol", out)
    assert await world.owner.items("parties") == []
    code, out, said = await hand("session", "submit", manifest, "--dry-run", "--format", "json")
    assert (code, "nothing was submitted" in said, "[would-be-refused]" in said) == (2, True, True)
    missing = held("session submit --dry-run", out)["missing"]
    assert [(entry.split(":")[0], entry.split("[")[-1]) for entry in missing] == [
        ("program", "unknown-program]"),
        ("validation.dataset", "unknown-validation-dataset]"),
        *((f"roster.{n}.holder", "party-not-enrolled]") for n in range(3)),
    ]
    await world.enrol()
    code, out, _ = await hand("session", "submit", manifest, "--dry-run", "--format", "json")
    assert (code, held("session submit --dry-run", out)["missing"]) == (0, [])
    assert await world.owner.items("sessions") == []

    for key in ("", "漢", "a\nb", "a b"):
        code, _, said = await hand("session", "submit", manifest, "--idempotency-key", key)
        assert (code, "[idempotency-key-malformed]" in said) == (2, True), said
    assert await world.owner.items("sessions") == []

    await world["holder-city"].stop()
    session = await world.submit()
    before = await world.owner.session(session)
    code, out, said = await hand("session", "cancel", session, "--dry-run", "--format", "json")
    assert (code, f"would cancel {session}" in said, held("session cancel", out)["id"]) == (0, True, session)
    assert (await world.owner.session(session))["version"] == before["version"]


async def test_a_dry_run_names_each_file_and_key_that_a_submission_would_be_refused_for(hand: Hand) -> None:
    world = hand.world
    for name in ("north", "city", "harbour"):
        await world.owner.enrol(
            name, PartyKey.generate().public if name == "city" else world.key(name).public, "holder"
        )
    manifest = world.material.manifest(initial_weights="ab" * 32)
    words = ("session", "submit", hand.write("m.json", manifest.canonical()), "--dry-run", "--format", "json")
    program, weights = hand.write("p.gput", world.material.archive), hand.write("w", world.material.weights)

    unjudged: list[list[str]] = []

    async def missing(*uploads: str) -> list[str]:
        """Codes."""
        code, out, said = await hand(*words, *(word for file in uploads for word in ("--upload", file)))
        shown = held("session submit --dry-run", out)
        found = shown["missing"]
        assert (code, "[would-be-refused]" in said) == ((2, True) if found else (0, False))
        assert all(sentence in said for sentence in (*found, *shown["unjudged"]))
        unjudged.append(shown["unjudged"])
        return [re.findall(r"\[([a-z-]+)\]$", sentence)[0] for sentence in found]

    other, no_program, given, records = (
        "key-mismatch",
        "unknown-program",
        "unknown-weights",
        "unknown-validation-dataset",
    )
    assert await missing() == [no_program, given, records, other]
    assert await missing(program, weights) == [given, records, other]
    strange = hand.write("strange", b"of no use")
    assert await missing(program, strange) == [given, records, other, "not-named"]
    assert await missing(program, hand.write("held-out", world.material.validation)) == [given, other]
    await world.owner.upload_validation(world.material.validation)
    # Without weights of its own the session starts from the program's, which are named by the archive, brought or stored.
    manifest = manifest.model_copy(update={"initial_weights": None})
    hand.write("m.json", manifest.canonical())
    its_own = [other, given]
    assert await missing(program) == its_own
    hand.write("p.safetensors", b"other weights")
    assert await missing(program) == its_own
    hand.write("p.safetensors", world.material.weights)
    assert await missing(program) == [other]
    assert "what depends on the program" in unjudged[-1][0]
    hand.write("p.safetensors", b"other weights")
    await world.owner.upload_program(world.material.archive)
    assert await missing() == [given, other]
    assert await missing(weights) == [other]
    assert unjudged[-1] == [
        "whether the weights are finite and the program's: the file is uploaded first, and not stored yet"
    ]
    await world.owner.upload_weights(world.material.weights)
    assert await missing() == [other]
    assert unjudged[-1] == []


async def test_an_operator_decides_by_a_beginning_and_tries_first(
    new_world: NewWorld, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with new_world(approve="manual") as world:
        hand = at_hand(world, tmp_path, capsys, monkeypatch)
        operator_at_hand(world, monkeypatch)
        session = await world.submit()
        asked = await world.operator("city").request(session)
        code, out, _ = await hand("party", "requests", "--format", "json")
        assert (code, [item["session"] for item in held("party requests", out)]) == (0, [session])
        code, out, _ = await hand("party", "request", session[:7], "--format", "json")
        assert (code, held("party request", out)["manifest"]) == (0, asked["manifest"])
        code, _, said = await hand("party", "approve", session[:7], "--manifest", "00" * 32, "--dry-run")
        assert (code, "[manifest-changed]" in said, "[would-be-refused]" in said) == (2, True, True)
        words = ("party", "approve", session[:7], "--manifest", asked["manifest"], "--format", "json")
        code, out, said = await hand(*words, "--dry-run")
        assert (code, f"would approve {session}" in said, "nothing was done" in said) == (0, True, True), said
        assert held("party approve", out)["state"] == asked["state"]
        assert (await world.operator("city").request(session))["state"] == asked["state"]
        code, out, said = await hand(*words)
        assert (code, held("party approve", out)["state"] != asked["state"]) == (0, True), said
        await world.owner.act(session, "cancel")


async def test_smoke_on_a_running_installation(hand: Hand) -> None:
    world = hand.world
    trust, program = str(world.folder / "trust"), hand.write("p.gput", world.material.archive)
    await world.enrol()
    plain = ("smoke", program, "--trust", trust, "--emulated")
    code, _, said = await hand(*plain, "--dry-run")
    assert (code, "nothing was done" in said) == (0, True)
    words = (*plain, "--format", "json")
    code, out, said = await hand(*words)
    assert code == 0, said
    found = held("smoke", out)
    assert (found["result"], found["receipts"], found["backends"]) == ("works", len(world.holders), ["EMULATED"])
    # A holder that is not there: it says for whom it waited, and leaves no session behind that would go on.
    await world["holder-city"].stop()
    code, _, said = await hand(*words, "--timeout", "2")
    assert (code, "[smoke-timed-out]" in said, "city" in said) == (3, True, True), said
    assert {view["phase"] for view in await world.owner.items("sessions")} == {"COMPLETED", "CANCELLED"}
    code, _, said = await hand("smoke", "--format", "json")
    assert (code, "[smoke-needs]" in said) == (2, True)
