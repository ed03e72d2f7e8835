"""A holder is gone for good: another takes its place in a session that goes on with the same model, optimiser state and step."""

from __future__ import annotations

from pathlib import Path

import pytest

from gput.receipt_chain import check_models
from gput.receipt_folder import LEAVES
from gput.receipt_leaves import HeldReceipt
from gput.receipts import save, verify
from shared.claims.manifest import Contributor, Predecessor
from shared.errors import BadRequest, GputError, VerificationFailed
from tests.successors.successor_world import (
    CAME,
    FIRST,
    LEFT,
    ROUNDS,
    VISIT_RECORDS,
    NewWorld,
    Rested,
    give_records_on,
)
from tests.world.world_material import STEPS

BEHIND = STEPS * len(FIRST)


async def test_the_model_is_that_of_a_session_that_nobody_left(new_world: NewWorld) -> None:
    """Bit for bit: the newcomer's records are those that the one who left would have brought. So the optimiser's moments, the step that
    bias correction, dropout and the decaying rate count from, and everybody's place in its records were all gone on with."""
    async with new_world("undisturbed") as world:
        undisturbed = await world.completed(await world.begun())
    async with new_world("left") as world:
        give_records_on(world.folder)
        before = await world.ended()
        view = await world.completed(await world.succeed(before))
        first = (await world.owner.session(before))["step"]
    assert view["model"]["digest"] == undisturbed["model"]["digest"]
    assert view["model"]["sha256"] == undisturbed["model"]["sha256"]
    assert (first, view["step"]) == (BEHIND, BEHIND * ROUNDS)
    assert view["step"] == view["steps_total"] == undisturbed["step"]
    assert view["predecessor"] == before


async def test_the_predecessors_key_goes_with_the_first_checkpoint_of_its_own(again: NewWorld, rested: Rested) -> None:
    """It had stayed, sealed, for as long as the successor was kept."""
    async with again(approve="manual") as world:
        after = await world.succeed(rested.session)
        assert await world.has_inherited_key(after)
        for name in (CAME, "city", "north"):
            await world.operator(name).decide(after, "approve", dataset="ehr")
        await world.until(after, lambda view: view["visits_closed"] > 0 or view["phase"] == "COMPLETED")
        assert not await world.has_inherited_key(after)
        view = await world.completed(after)
    assert view["model"]["digest"] == rested.model["digest"]


async def test_both_logs_verify_together_and_nothing_else_goes_with_them(
    again: NewWorld, rested: Rested, tmp_path: Path
) -> None:
    async with again() as world:
        after = await world.succeed(rested.session)
        await world.completed(after)
        folders = {name: tmp_path / name for name in (rested.session, after)}
        for name, folder in folders.items():
            await save(world.owner, name, folder, world.folder / "trust")
        visits = {visit["index"]: visit for visit in await world.visits(after)}
    found = verify(folders[after], predecessor=folders[rested.session])
    assert found.predecessor == rested.session
    assert found.holders == dict.fromkeys((CAME, "city", "north"), ROUNDS - 1)
    with pytest.raises(BadRequest) as caught:
        verify(folders[rested.session], predecessor=folders[after])
    assert caught.value.code == "predecessor-mismatch"
    # Who stayed goes on behind its own last record; who came begins.
    assert [visits[index]["cursor"]["start"] for index in (1, 2, 3)] == [0, VISIT_RECORDS, VISIT_RECORDS]
    assert visits[1]["first_step"] == BEHIND


START = Predecessor(
    session="s_aaaaaaaaaaaaaaaa", manifest="0" * 64, model="a" * 64, optimiser="0" * 64, step=9, log_size=1, log_root="0" * 64,
    contributors=(Contributor(holder="city", key="0" * 64, records=1),),
)  # fmt: skip


def _visit(stop: int, first_step: int, before: str, after: str) -> HeldReceipt:
    models = before * 64, after * 64
    return HeldReceipt(
        f"v_{stop}", stop, 1, "city", "closed", "EMULATED", 16, first_step, 3, *models, None, None, None, 2 * stop
    )


@pytest.mark.parametrize(
    ("forged", "code"),
    [
        (_visit(1, 9, "b", "c"), "predecessor-link"),
        (_visit(1, 0, "a", "c"), "predecessor-link"),
        (_visit(1, 12, "a", "c"), "predecessor-link"),
        (_visit(1, 12, "b", "c"), "predecessor-link"),
    ],
)
def test_a_forged_first_link_is_named(forged: HeldReceipt, code: str) -> None:
    sound = {0: _visit(1, 9, "a", "b"), 1: _visit(2, 12, "b", "c"), 3: _visit(1, 9, "a", "b")}
    restored = {2: ["gput/log-event/1", "s_bbbbbbbbbbbbbbbb", "restored", {"position": 0}]}
    check_models(sound, {}, restored, LEAVES, START)
    with pytest.raises(
        VerificationFailed, match=r"leaves\.jsonl: leaf 0: visit v_1 does not go on where s_a"
    ) as caught:
        check_models({**sound, 0: forged}, {}, restored, LEAVES, START)
    assert caught.value.code == code


async def test_what_ends_with_a_checkpoint_can_be_gone_on_with_and_what_does_not_cannot(new_world: NewWorld) -> None:
    """A finished session whose holders agreed is sealed at its end; one that said nothing is not, and a pause is what seals it."""
    async with new_world(settings={"orchestrator": {"checkpoint_interval_s": 1e9}}) as world:
        silent = await world.begun(continuation=None, rounds=1)
        await world.completed(silent)
        with pytest.raises(GputError) as caught:
            await world.owner.successor(silent, rounds=1)
        assert caught.value.code == "predecessor-without-model"
        agreed = str((await world.owner.submit(world.first(rounds=1)))["id"])
        await world.completed(agreed)
        with pytest.raises(BadRequest, match="no rounds left"):
            await world.owner.successor(agreed)
        # Everybody is in the roster: it may go on, however the predecessor put it.
        more = await world.owner.successor(agreed, rounds=1)
        view = await world.completed(str((await world.owner.submit(more))["id"]))
        assert (view["step"], view["visits_closed"]) == (2 * BEHIND, len(FIRST))


async def test_a_session_that_its_pause_ended_is_gone_on_with(new_world: NewWorld) -> None:
    """From the checkpoint that the pause sealed: nothing else had made one."""
    brief = {"checkpoint_interval_s": 1e9, "pause_limit_s": 1e-3}
    async with new_world(settings={"orchestrator": brief}) as world:
        before = await world.begun(continuation=None, rounds=1000)
        await world.until(before, lambda view: view["visits_closed"] >= 1)
        await world.owner.act(before, "pause")
        ended = await world.finish(before)
        assert (ended["phase"], ended["failure"]["code"]) == ("FAILED", "pause-limit")
        more = await world.owner.successor(before, rounds=1)
        view = await world.completed(str((await world.owner.submit(more))["id"]))
        assert view["predecessor"] == before
        assert view["step"] == ended["step"] + BEHIND > BEHIND


async def test_a_successor_can_have_a_successor(again: NewWorld, rested: Rested) -> None:
    """Whose records are in the model is handed on: the one who left first as well."""
    async with again() as world:
        second = await world.owner.successor(rested.session, replace={LEFT: CAME}, rounds=1)
        middle = str((await world.owner.submit(second))["id"])
        await world.completed(middle)
        says = await world.rest(middle)
        assert {one.holder: one.records for one in says.contributors} == {
            LEFT: VISIT_RECORDS, CAME: VISIT_RECORDS, "city": 2 * VISIT_RECORDS, "north": 2 * VISIT_RECORDS,
        }  # fmt: skip
        third = await world.owner.successor(middle, remove=[CAME], rounds=1)
        view = await world.completed(str((await world.owner.submit(third))["id"]))
        assert view["step"] == 2 * BEHIND + STEPS * 2


async def test_the_held_out_loss_is_measured_anew(new_world: NewWorld) -> None:
    """Of the model that is gone on with: over the same records it is what it was."""
    async with new_world() as world:
        rule = world.material.manifest(holders=FIRST).validation
        before = await world.ended(validation=rule)
        view = await world.completed(await world.succeed(before))
        was = await world.owner.session(before)
    assert view["validation_loss"]["first"] == was["validation_loss"]["last"] != was["validation_loss"]["first"]
