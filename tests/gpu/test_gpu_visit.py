"""A whole visit on a real device: setup, grant, copy, fence, train, commit, scrub, statement. Knows no HTTP."""

from __future__ import annotations

from shared.canonical import blake3_256, cbor_value
from shared.claims.archive import open_archive
from shared.claims.receipt import DeviceStatement
from shared.crypto import cose
from shared.wire import gpu
from tests.gpu.gpu_holder import Holder
from tests.gpu.gpu_world import SESSION, World, program, records


def test_one_visit_from_grant_to_statement(world: World) -> None:
    world.set_up()
    before = world.measure()
    data = records(32)
    holder = world.install(32)
    ack = holder.send(data)
    assert ack.published
    assert ack.received == len(data)
    _, opened, _ = world.open_epoch(holder.grant.epoch)
    (content,) = opened.fenced
    assert (content.records, content.length, content.published) == (32, len(data), True)
    assert content.commitment == holder.commitment(bytes(range(32)), data)
    assert world.run(gpu.Drain())[0].outstanding == 0
    assert world.measure().model == before.model

    state = world.train(holder, steps=4)
    assert state.state == "done", state
    assert [step for step, _ in state.losses] == [0, 1, 2, 3]
    assert all(round(loss, 4) == loss for _, loss in state.losses)
    assert (state.records, state.steps_done, state.finite) == (32, 4, True)
    assert state.update_norm is not None
    assert state.update_norm > 0
    assert world.measure().model != before.model

    _close(world, holder, before.model, content.commitment)


def _close(world: World, holder: Holder, model_before: str, commitment: str) -> None:
    region, length = holder.grant.region, holder.grant.length
    committed, scrubbed, closed = world.run(
        gpu.Commit(work="w1"), gpu.Scrub(region=region), gpu.CloseVisit(visit=holder.grant.visit)
    )
    assert committed.step == 4
    assert committed.model == world.measure().model
    assert scrubbed.digest == blake3_256(bytes(64 * 1024)).hex()
    key = world.device._root.statement_key.public
    statement = DeviceStatement.model_validate(cbor_value(cose.verify1(closed.statement, key)))
    assert statement.model_before == model_before
    assert statement.model_after == committed.model
    assert (statement.session, statement.visit, statement.epoch) == (SESSION, holder.grant.visit, holder.grant.epoch)
    assert (statement.records, statement.length, statement.commitment) == (32, length, commitment)
    assert (statement.first_step, statement.steps, statement.backend) == (0, 4, "EMULATED")
    assert statement.program == open_archive(program()[0]).digest.hex()
    assert (statement.scrubbed_bytes, statement.scrub_digest) == (64 * 1024, scrubbed.digest)
    assert world.run(gpu.CloseVisit(visit=holder.grant.visit))[0].statement == closed.statement
    assert world.phase(region) == "CLEAN"
