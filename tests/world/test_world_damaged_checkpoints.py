"""The disk fails a GPU that is filled from it: a fault is waited out, and what is damaged is passed over for what is whole."""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from gpu_agent.hardware import commands_transfer
from gpu_agent.hardware.model_memory import ModelMemory
from gput.receipts import save, verify
from orchestrator.gpu_session import checkpoints
from orchestrator.gpu_session.checkpoints import MAGIC
from orchestrator.runner import patience, recovery
from orchestrator.visits import training
from orchestrator.visits.run import Run
from shared.canonical import cbor_bytes, cbor_value
from shared.claims.training import AdamW, TrainingOptions
from tests.world.test_world_early_stop import asked, losses, models
from tests.world.world import NewWorld, World
from tests.world.world_faults import Point, Trap
from tests.world.world_material import BATCH, Material
from tests.world.world_recording import Recording

ALWAYS = {"orchestrator": {"checkpoint_interval_s": 1e-6, "checkpoint_share": 1e6}}
"""A checkpoint after each visit."""


async def sealed(world: World) -> str:
    """A session with two checkpoints, whose GPU has just lost its power in mid-visit."""
    trap = Trap(world, Point("holder", "orchestrator", "/report", "after", 4), world["agent"].kill)
    session = await world.submit()
    await trap.done()
    assert len(sealed_files(world, session)) == 2
    return session


def sealed_files(world: World, session: str) -> list[Path]:
    """Sealed checkpoints, oldest first."""
    folder = world.folder / "orchestrator" / "sessions" / session / "checkpoints"
    return sorted(folder.glob("*.sealed"), key=lambda path: path.stat().st_mtime_ns)


async def test_a_moments_fault_of_the_disk_ends_no_session(
    new_world: NewWorld, recorded: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, failed = Path.open, list[Path]()

    def once(self: Path, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        if self.suffix == ".sealed" and mode == "rb" and not failed:
            failed.append(self)
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return opened(self, mode, *arguments, **options)

    async with new_world(own_gpu=True, settings=ALWAYS) as world:
        session = await sealed(world)
        monkeypatch.setattr(Path, "open", once)
        await world["agent"].start()
        view = await world.completed(session)
        assert view["model"]["digest"] == recorded.view["model"]["digest"]
        assert len(failed) == 1


class _Failing(io.FileIO):
    """A sealed file whose disk gives the first part and, until it was asked that often, nothing of the second; others are sound."""

    part, often = 2048, 15
    first, failed = "", 0

    def read(self, size: int | None = -1, /) -> Any:
        kind = type(self)
        kind.first = kind.first or str(self.name)
        if self.tell() > self.part and str(self.name) == kind.first and kind.failed < self.often:
            kind.failed += 1
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return super().read(-1 if size is None else size)


async def test_a_disk_that_fails_under_the_best_model_is_waited_out_for_as_long_as_it_does(
    new_world: NewWorld, material: Material, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of it had been written over the GPU's model by then: visits were repeated, and after some tries the session was ended."""
    monkeypatch.setattr(commands_transfer, "CHUNK", _Failing.part // 4)
    monkeypatch.setattr(checkpoints, "BATCH_BYTES", _Failing.part)
    monkeypatch.setattr(patience, "PATIENCE_S", (0.01,))
    monkeypatch.setattr(_Failing, "first", "")
    monkeypatch.setattr(_Failing, "failed", 0)
    opened = Path.open

    def failing(self: Path, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        sealed = self.suffix == ".sealed" and mode == "rb"
        return _Failing(self) if sealed else opened(self, mode, *arguments, **options)

    monkeypatch.setattr(Path, "open", failing)
    async with new_world(settings=ALWAYS) as world:
        session = await world.submit(**asked(material))
        view = await world.completed(session)
        seen, left = await losses(world, session), await models(world, session)
        visits = await world.visits(session)
    assert _Failing.failed == _Failing.often
    assert view["model"]["digest"] == left[seen.index(min(seen))] != left[-1]
    assert {visit["outcome"] for visit in visits} == {"closed"}
    assert len({visit["index"] for visit in visits}) == len(visits)


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:100])


def changed(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def _with_header(path: Path, change: Callable[[list[int]], list[int]], more: int) -> None:
    """Its first header, of a small model's only part, says other lengths of chunks; `more`: bytes behind them."""
    data, begin = path.read_bytes(), len(MAGIC) + 4
    end = begin + int.from_bytes(data[begin - 4 : begin], "little")
    offset, covered, lengths = cast(list[Any], cbor_value(data[begin:end]))
    header = cbor_bytes([offset, covered, change(lengths)])
    path.write_bytes(MAGIC + len(header).to_bytes(4, "little") + header + data[end:] + bytes(more))


def _too_large(path: Path) -> None:
    _with_header(path, lambda lengths: [*lengths[:-1], lengths[-1] + (3 << 20)], 3 << 20)


def _too_many(path: Path) -> None:
    _with_header(path, lambda lengths: [*lengths, *[1] * 64], 64)


@pytest.mark.parametrize(
    ("whole", "damage"), [(1, _cut), (1, changed), (1, _too_large), (1, _too_many), (0, _cut), (0, changed)]
)
async def test_a_damaged_checkpoint_is_set_aside_for_the_one_before_it(
    new_world: NewWorld, recorded: Recording, damage: Callable[[Path], None], whole: int
) -> None:
    async with new_world(own_gpu=True, settings=ALWAYS) as world:
        session = await sealed(world)
        files = sealed_files(world, session)
        for path in files[whole:]:
            damage(path)
        await world["agent"].start()
        view = await world.completed(session)
        assert view["model"]["digest"] == recorded.view["model"]["digest"]
        assert {path.stem for path in files[0].parent.glob("*.damaged")} == {path.stem for path in files[whole:]}
        [restored] = [event for event in await world.events(session) if "'restored'" in event]
        assert (files[0].stem in restored) is bool(whole), "the log says which one it was"


async def test_what_was_gone_back_to_once_can_be_gone_back_to_again(new_world: NewWorld, recorded: Recording) -> None:
    """The file after it was damaged, and then the one that was sealed in that one's place."""
    async with new_world(own_gpu=True, settings=ALWAYS) as world:
        session = await sealed(world)
        kept, damaged = sealed_files(world, session)
        changed(damaged)
        trap = Trap(world, Point("holder", "orchestrator", "/report", "after", 2), world["agent"].kill)
        await world["agent"].start()
        await trap.done()
        again, newest = sealed_files(world, session)
        assert again == kept
        changed(newest)
        await world["agent"].start()
        view = await world.completed(session)
        assert view["model"]["digest"] == recorded.view["model"]["digest"]
        restored = [event for event in await world.events(session) if "'restored'" in event]
        assert [kept.stem in event for event in restored] == [True, True]


async def test_a_first_model_that_is_the_best_is_released_though_its_checkpoint_was_damaged(
    new_world: NewWorld, material: Material
) -> None:
    """It was made anew, whole; the session ended with the file that had been set aside all the same."""
    ruinous = TrainingOptions(optimizer=AdamW(lr=3.0), batch_size=BATCH, seed=7)
    async with new_world(own_gpu=True) as world:
        trap = Trap(world, Point("holder", "orchestrator", "/report", "after", 1), world["agent"].kill)
        session = await world.submit(**asked(material, patience=None) | {"rounds": 1, "training": ruinous})
        await trap.done()
        [first] = sealed_files(world, session)
        changed(first)
        await world["agent"].start()
        view = await world.completed(session)
        seen, left = await losses(world, session), await models(world, session)
        await save(world.owner, session, world.folder / "saved", world.folder / "trust")
        assert verify(world.folder / "saved").models == (view["model"]["digest"],)
    assert seen[0] == min(seen), "the test's rate is to destroy"
    assert view["model"]["digest"] == left[0]


LOSSES = {1: 1.0, 2: 2.0, 3: 0.5, 4: 2.2, 5: 2.2}
"""By stop; that of the first model is 3."""


async def test_the_best_model_before_is_released_where_its_successor_was_damaged_and_does_not_come_again(
    new_world: NewWorld, material: Material, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its holder vetoes. The last model was released in its place, without a word."""

    async def told(run: Run, work: str, region: int | None) -> float | None:
        return 3.0 if run.state.current is None else LOSSES[run.state.current.index]

    for module in (training, recovery):
        monkeypatch.setattr(module, "held_out_loss", told)
    changes = asked(material, patience=None) | {"rounds": 2, "quorum": 2}
    async with new_world(own_gpu=True, settings=ALWAYS) as world:
        trap = Trap(world, Point("holder", "orchestrator", "/report", "after", 4), world["agent"].kill)
        session = await world.submit(**changes)
        await trap.done()
        *_, best = sealed_files(world, session)
        changed(best)
        await world.operator("north").decide(session, "veto")
        await world["agent"].start()
        view = await world.completed(session)
        visits = await world.visits(session)
        left = {visit["index"]: visit for visit in visits if visit["outcome"] == "closed"}
        await save(world.owner, session, world.folder / "saved", world.folder / "trust")
        assert verify(world.folder / "saved").models == (view["model"]["digest"],)
        digests = await models(world, session)
    assert set(left) == {1, 2, 3, 4, 5}
    assert view["validation_loss"]["last"] == LOSSES[1]
    assert view["model"]["digest"] == digests[1]


async def test_a_checkpoint_of_another_model_than_it_was_made_of_is_set_aside(
    new_world: NewWorld, recorded: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its chunks are those that the GPU sealed: only the digest of all of them tells."""
    read, chunks = ModelMemory.read_committed, list[int]()

    def with_a_flip(self: ModelMemory, offset: int, length: int) -> memoryview:
        chunks.append(offset)
        data = bytearray(read(self, offset, length))
        data[0] ^= chunks.count(0) == 3  # the newest checkpoint of the first life, while it is read
        return memoryview(data)

    monkeypatch.setattr(ModelMemory, "read_committed", with_a_flip)
    async with new_world(own_gpu=True, settings=ALWAYS) as world:
        session = await sealed(world)
        kept, of_another = sealed_files(world, session)
        await world["agent"].start()
        view = await world.completed(session)
        assert view["model"]["digest"] == recorded.view["model"]["digest"]
        assert [path.stem for path in kept.parent.glob("*.damaged")] == [of_another.stem]
