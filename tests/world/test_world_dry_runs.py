"""What a dry run says an act would come to is what the act then comes to, over acts that are taken and acts that are refused."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from shared.crypto.signing import PartyKey
from tests.world.world import NewWorld
from tests.world.world_hand import Hand, at_hand, operator_at_hand


async def same(hand: Hand, *words: str) -> bool:
    """Whether these words are taken: first asked by a dry run, then said."""
    dry, _, tried = await hand(*words, "--dry-run")
    real, _, said = await hand(*words, *(["--yes"] if words[1] in ("cancel", "veto", "replace-key") else []))
    assert (dry == 0) == (real == 0), (words, tried, said)
    assert dry == 0 or ((dry, "[would-be-refused]" in tried) == (2, True)), tried
    assert "nothing was done" in tried
    return real == 0


@pytest.fixture
async def asked(
    new_world: NewWorld, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> AsyncIterator[tuple[Hand, str]]:
    """A person at hand, as owner and as one holder's operator, and a session that waits for all holders."""
    async with new_world(approve="manual") as world:
        hand = at_hand(world, tmp_path, capsys, monkeypatch)
        operator_at_hand(world, monkeypatch)
        session = await world.submit()
        await world.operator("city").request(session)
        yield hand, session


async def test_an_owners_words(asked: tuple[Hand, str]) -> None:
    hand, session = asked
    assert [await same(hand, "session", word, session) for word in ("pause", "resume", "cancel")] == [
        False,
        False,
        True,
    ]
    assert [await same(hand, "session", word, session) for word in ("pause", "resume", "cancel")] == [
        False,
        False,
        True,
    ]


async def test_another_owners_session(asked: tuple[Hand, str], monkeypatch: pytest.MonkeyPatch) -> None:
    hand, session = asked
    other = PartyKey.generate()
    other.save(hand.folder / "other.pem")
    (hand.world.folder / "owners" / "other.pub").write_bytes(other.public_pem)
    monkeypatch.setenv("GPUT_KEY", str(hand.folder / "other.pem"))
    assert not await same(hand, "session", "cancel", session)


async def test_a_holders_words(asked: tuple[Hand, str]) -> None:
    hand, session = asked
    manifest = (await hand.world.operator("city").request(session))["manifest"]

    async def taken(verb: str, *more: str) -> bool:
        return await same(hand, "party", verb, session, "--manifest", manifest, *more)

    assert not await taken("veto")
    assert not await taken("approve", "--anew")
    assert await taken("approve")
    assert await taken("approve")  # the very same is answered as the first time
    assert await taken("approve", "--anew")
    assert not await taken("approve", "--reason", "and again")
    assert not await taken("refuse")
    assert await taken("veto")
    assert not await taken("approve")


async def test_of_an_ended_session(asked: tuple[Hand, str]) -> None:
    hand, session = asked
    operator = hand.world.operator("city")
    manifest = (await operator.request(session))["manifest"]
    await hand.world.owner.act(session, "cancel")
    await operator.request(session, phase="CANCELLED")
    for verb in ("approve", "refuse", "veto"):
        assert not await same(hand, "party", verb, session, "--manifest", manifest)


async def test_keys(asked: tuple[Hand, str]) -> None:
    hand, session = asked
    keys = [PartyKey.generate() for _ in range(3)]
    first, second, third = (hand.write(f"{n}.pub", key.public_pem) for n, key in enumerate(keys))

    async def taken(verb: str, name: str, key: str, *more: str) -> bool:
        return await same(hand, "party", verb, name, key, *more)

    assert [await taken("enrol", *words) for words in (("new", first), ("new", first))] == [True, True]
    assert [await taken("enrol", *words) for words in (("new", second), ("other", first))] == [False, False]
    assert not await taken("enrol", "new", first, "--role", "auditor")
    assert not await taken("replace-key", "city", second)  # its session goes on
    await hand.world.owner.act(session, "cancel")
    assert await taken("replace-key", "new", second)
    assert [await taken("replace-key", "city", key) for key in (first, second, third)] == [False, False, True]
