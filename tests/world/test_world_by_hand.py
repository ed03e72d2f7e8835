"""A new owner's way, by the command line alone: draft a manifest, edit it, submit it with its files, and what goes wrong on the way."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from shared.canonical import sha256
from shared.claims.manifest import parse_manifest
from tests.world.world_hand import Hand, edited


async def test_from_a_draft_to_a_finished_model(hand: Hand) -> None:
    world = hand.world
    program = hand.write("p.gput", world.material.archive)
    weights = hand.write("w.safetensors", world.material.weights)
    held_out = hand.write("held-out.records", world.material.validation)

    code, _, said = await hand("session", "draft", program, "--emulated")
    assert (code, "no holder is enrolled" in said, "gput party enrol" in said) == (2, True, True)
    for name in world.holders:
        await world.owner.enrol(name, world.material.keys[name].public)
    code, _, said = await hand("session", "draft", program, "--holder", "nobody", "--emulated")
    assert (code, "not enrolled as holders: nobody" in said) == (2, True)

    code, text, _ = await hand("session", "draft", program, "--emulated")
    assert code == 0
    drafted = parse_manifest(text.encode())
    assert [entry.holder for entry in drafted.roster] == sorted(world.holders)
    assert drafted.program == world.material.program

    own = world.material.manifest()
    assert own.validation is not None
    changes = {
        "rounds": 1, "steps_per_visit": own.steps_per_visit, "training": own.training.model_dump(mode="json"),
        "privacy_floor": own.privacy_floor, "validation": own.validation.model_dump(mode="json"),
    }  # fmt: skip
    path = hand.write("manifest.json", edited(text, **changes))

    code, _, said = await hand("session", "submit", path)
    assert code == 2
    assert "program: no program with digest" in said
    assert "gput session submit … --upload FILE" in said

    stranger = hand.write("stranger", b"who knows")
    code, _, said = await hand("session", "submit", path, "--upload", stranger)
    assert (code, "[not-named]" in said, sha256(b"who knows").hex() in said) == (2, True, True)

    # Weights before the program that names them: the order of the words does not matter.
    files = [word for file in (weights, held_out, program) for word in ("--upload", file)]
    code, out, said = await hand("session", "submit", path, *files, "--wait", "--timeout", "60", "--format", "json")
    assert code == 0, said
    assert json.loads(out)["phase"] == "COMPLETED"
    assert [line.rsplit(": ", 1)[1] for line in said.splitlines() if line.startswith("uploaded")] == [
        "the program", "weights to start from", "held-out records",
    ]  # fmt: skip
    code, shown, said = await hand("attest", "session", json.loads(out)["id"])
    assert (code, shown.count("accepted, trust warning")) == (0, 1 + len(world.holders)), said


async def test_several_wrong_fields_get_a_line_each(hand: Hand) -> None:
    await hand.world.enrol()
    manifest = hand.world.material.manifest().model_dump(mode="json")
    wrong: dict[str, Callable[[dict[str, Any]], Any]] = {
        "here": lambda m: m.update(rounds=0, steps_per_visitt=3),
        "there": lambda m: (
            m["roster"][0].update(holder="stranger"),
            m.update(buffer_bytes=4096, steps_per_visit=9000),
        ),
    }
    for place, spoil in wrong.items():
        document = json.loads(json.dumps(manifest))
        spoil(document)
        code, out, said = await hand("session", "submit", hand.write(f"{place}.json", json.dumps(document).encode()))
        assert (code, out) == (2, "")
        head, *lines = said.splitlines()
        assert head.startswith(
            "gput: invalid manifest: " + (f"{hand.folder}/here.json: " if place == "here" else "orchestrator: ")
        )
        assert head.endswith("]")
        fields = [line.split(":")[0].strip() for line in lines]
        assert len(lines) >= 2
        assert {"here": {"rounds", "steps_per_visitt"}, "there": {"roster.0.holder", "buffer_bytes"}}[place] <= set(
            fields
        )
        assert "gput party enrol stranger" in said or place == "here"
    assert await hand.world.owner.items("sessions") == []
