"""Private training on a real device: what is drawn when, what survives, what leaves."""

from __future__ import annotations

import pytest

from gpu_agent.workload.builder import build
from gpu_agent.workload.programs import builtin
from shared.claims.privacy import Privacy
from shared.claims.visit import CursorRange
from shared.names import RegionKind
from shared.wire import gpu, gpu_answers
from tests.gpu import gpu_world
from tests.gpu.gpu_training import committed_visit, state_of
from tests.gpu.gpu_world import FEATURES, MANIFEST, RECORD_BYTES, SESSION, World, records

PRIVACY = Privacy(max_grad_norm=1.0, noise_multiplier=1.0, delta=1e-5)
DATA, MORE = records(64), records(64, 2)
KEY = bytes(range(32))


def trained(world: World, data: bytes = DATA, work: str = "w1", first: int = 0, **visit: object) -> str:
    """Digest of the model after a training that is then taken back; the region is scrubbed."""
    holder = world.visit(data, **visit)  # type: ignore[arg-type]  # fields of a grant
    state = world.train(holder, work, 4, first)
    assert (state.state, state.finite, state.steps_done) == ("done", True, 4)
    model = world.measure().model
    world.run(gpu.RollBack(), gpu.Scrub(region=holder.grant.region))
    return model


def test_the_same_computation_draws_the_same_noise_and_any_other_its_own(world: World) -> None:
    """Were noise drawn from the step alone, two trainings at one step would give away the difference of what it hides."""
    world.set_up(privacy=PRIVACY)
    first = trained(world, DATA, "a")
    assert trained(world, DATA, "b") == first, "another visit, epoch and address, and the same computation"
    others = {
        trained(world, MORE, "c"), trained(world, DATA, "d", holder="south", port="holder-south"),
    }  # fmt: skip
    assert len(others | {first}) == 3
    world.set_up(privacy=PRIVACY)
    assert trained(world, DATA, "e") not in others | {first}, "another session has another secret"


def noise_keys(world: World, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Keys of the launches from now on."""
    seen: list[str] = []
    start = world.compute.start

    def watched(launch: object) -> None:
        seen.append(launch.noise_key)  # type: ignore[attr-defined]  # a Launch
        assert launch.noise_key not in repr(launch)  # type: ignore[attr-defined]
        start(launch)  # type: ignore[arg-type]

    monkeypatch.setattr(world.compute, "start", watched)
    return seen


def test_the_key_of_the_noise_is_bound_to_everything_the_result_depends_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.set_up(privacy=PRIVACY)
    seen = noise_keys(world, monkeypatch)
    other, south = CursorRange(start=32, count=32), {"holder": "south", "port": "holder-south"}
    for number, fields in enumerate(({}, south, {"cursor": other}, {"cursor": CursorRange(start=0, count=32)})):
        holder = world.install(64, 0, DATA, **fields)
        cursor = holder.grant.cursor
        holder.send(DATA[cursor.start * RECORD_BYTES : (cursor.start + cursor.count) * RECORD_BYTES])
        world.open_epoch(holder.grant.epoch)
        world.train(holder, f"w{number}", 2)
        world.run(gpu.RollBack(), gpu.Scrub(region=holder.grant.region))
    committed_visit(world, DATA, "w5", 0, 2)  # as the first, and now the model is another
    holder = world.visit(DATA)
    world.train(holder, "w6", 2, 2)
    world.run(gpu.RollBack(), gpu.Scrub(region=holder.grant.region))
    holder = world.visit(DATA)
    world.train(holder, "w7", 3, 2)
    assert all(len(key) == 64 for key in seen)
    assert seen[0] == seen[4]
    assert len(set(seen)) == len(seen) - 1


def test_an_interrupted_session_gives_the_same_model(world: World) -> None:
    world.set_up(privacy=PRIVACY)
    straight = trained(world, DATA, "w1")
    holder = world.visit(DATA)
    world.run(world.train_command(holder, "lost", 4, 0))
    world.resume()
    world.run(gpu.RollBack())
    assert trained(world, DATA, "again") == straight


def test_a_reset_gpu_repeats_with_the_same_noise(world: World) -> None:
    """The secret comes back with the checkpoint, and only with it."""
    world.set_up(privacy=PRIVACY)
    part = world.run(gpu.Checkpoint(key=KEY, name="cp1", length=32 << 20))[0]
    sealed = list(world.bulk)
    committed_visit(world, DATA, "w1", 0)
    committed_visit(world, MORE, "w2", 4)
    straight = state_of(world)
    world.set_up(privacy=PRIVACY)
    committed_visit(world, DATA, "w1", 0)
    assert state_of(world) != straight
    restore = gpu.Restore(
        key=KEY, name="cp1", offset=0, length=part.total, records=len(sealed), last=True, model=part.model,
        optimiser=part.optimiser,
    )  # fmt: skip
    world.run(restore, bulk=sealed)
    committed_visit(world, DATA, "w3", 0)
    committed_visit(world, MORE, "w4", 4)
    assert state_of(world) == straight


def test_a_checkpoint_of_a_session_without_privacy_is_none_of_one_with_it(world: World) -> None:
    world.set_up()
    part = world.run(gpu.Checkpoint(key=KEY, name="cp1", length=32 << 20))[0]
    sealed = list(world.bulk)
    world.set_up(privacy=PRIVACY)
    restore = gpu.Restore(
        key=KEY, name="cp1", offset=0, length=part.total, records=len(sealed), last=True, model=part.model,
        optimiser=part.optimiser,
    )  # fmt: skip
    assert world.refused(restore, bulk=sealed) == "bulk-mismatch"


def test_no_loss_over_a_holders_records_leaves_and_the_owners_own_do(world: World) -> None:
    world.set_up(privacy=PRIVACY, privacy_floor=1, loss_decimals=6)
    holder = world.visit(DATA)
    state = world.train(holder, steps=4)
    assert (state.losses, state.loss, state.steps_done, state.records) == ([], None, 4, 32)
    assert state.update_norm is not None
    assert state.update_norm > 0
    work = world.device._state.ledger.work("w1")  # nor is one kept where anything could tell it later
    assert {loss for _, loss in work.losses} == {None}
    world.run(gpu.Commit(work="w1"))
    asked = gpu.Evaluate(work="e1", region=holder.grant.region, records=8)
    assert world.refused(asked) == "not-released"
    validation = records(16, 9)
    place = world.region(RegionKind.VALIDATION)
    world.run(gpu.Upload(region=place.handle, offset=0, length=len(validation), records=1), bulk=[validation])
    world.run(gpu.Evaluate(work="e2", region=place.handle, records=16))
    assert world.finish("e2").loss is not None


def test_the_statement_says_how_it_was_trained(world: World) -> None:
    from shared.canonical import cbor_value
    from shared.claims.receipt import DeviceStatement
    from shared.crypto.cose import verify1

    def said() -> DeviceStatement:
        holder = world.visit(DATA)
        world.train(holder, "w1", 4)
        answers = world.run(
            gpu.Commit(work="w1"), gpu.Scrub(region=holder.grant.region), gpu.CloseVisit(visit=holder.grant.visit)
        )
        key = world.device._root.statement_key.public
        return DeviceStatement.model_validate(cbor_value(verify1(answers[2].statement, key)))

    world.set_up(privacy=PRIVACY)
    assert said().privacy == PRIVACY
    world.set_up()
    assert "privacy" not in said().model_dump()


def test_a_program_that_mixes_samples_is_not_configured(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The orchestrator refuses it at submission; the GPU does not rely on that."""
    mixing = build(builtin("classifier", features=FEATURES, classes=4, batch_norm=True))
    monkeypatch.setattr(gpu_world, "program", lambda: mixing)
    world.connect()
    upload, bulk = world.program_command()
    world.run(gpu.InitSession(session=SESSION, manifest=MANIFEST), upload, bulk=bulk)
    assert world.refused(world.configure_command(privacy=PRIVACY)) == "samples-not-independent"
    configured = world.run(world.configure_command())[0]
    assert isinstance(configured, gpu_answers.Configured)
