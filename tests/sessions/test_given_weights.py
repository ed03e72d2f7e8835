"""A session that starts from given weights, whatever its program would start from; wrong weights are refused at submission."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from gpu_agent.workload.builder import build
from orchestrator.weights import WeightsMap
from shared.canonical import sha256
from shared.claims.archive import open_archive
from shared.claims.layout import plan_memory, region_digest
from shared.claims.program import SeedInit
from shared.claims.training import AdamW, TrainingOptions
from shared.errors import GputError
from tests.sessions.session_world import Work
from tests.world.world_material import HOLDERS

B, T = 4, 16
OPTIONS = TrainingOptions(batch_size=B, optimizer=AdamW(lr=1e-3))
Arrays = dict[str, np.ndarray[Any, Any]]


@pytest.fixture(scope="module")
def seeded() -> bytes:
    archive, weights = build("gpt2", layers=1, heads=2, width=16, context=T, seed=4)
    assert weights is None
    return archive


@pytest.fixture(scope="module")
def given(seeded: bytes) -> Arrays:
    draw = np.random.default_rng(8)
    return {
        spec.name: draw.normal(0, 0.05, spec.shape).astype(np.float32)
        for spec in open_archive(seeded).manifest.parameters
    }


@pytest.fixture
def work(seeded: bytes, given: Arrays, tmp_path: Path) -> Work:
    for number, name in enumerate(HOLDERS):
        (tmp_path / f"{name}.txt").write_bytes(
            np.random.default_rng(number).integers(97, 123, 2000, np.uint8).tobytes()
        )
    return Work(seeded, safetensors.numpy.save(given), {name: tmp_path / f"{name}.txt" for name in HOLDERS})


def _changes(work: Work, **more: Any) -> dict[str, Any]:
    assert work.weights is not None
    return {
        "initial_weights": sha256(work.weights).hex(), "rounds": 1, "steps_per_visit": 1, "training": OPTIONS,
        "privacy_floor": B, "validation": None, **more,
    }  # fmt: skip


def _digest(archive: bytes, tensors: Arrays) -> str:
    """The model region's digest if it held these tensors, laid out here by the plan alone."""
    plan = plan_memory(open_archive(archive).manifest, OPTIONS).model
    region = bytearray(plan.length)
    for placed in plan.tensors:
        region[placed.offset : placed.offset + placed.size_bytes] = tensors[placed.spec.name].tobytes()
    return region_digest(plan, lambda offset, length: bytes(region[offset : offset + length])).hex()


async def test_a_seeded_program_starts_from_uploaded_weights(session_world: Any, work: Work, given: Arrays) -> None:
    assert isinstance(open_archive(work.archive).manifest.initial_weights, SeedInit)
    models = {}
    for name, start in (("given", _changes(work)), ("seed", _changes(work, initial_weights=None))):
        async with session_world(work, name) as world:
            session = await world.submit(**start)
            await world.completed(session)
            models[name] = (await world.statements(session))[0][1]["model_before"]
            if name == "given":
                exported = safetensors.numpy.load_file(await world.model_file(session))
    assert models["given"] == _digest(work.archive, given)
    assert models["seed"] != models["given"]
    # One Adam step of 1e-3 a visit: the trained model is near the given one, and is another.
    far = max(float(np.abs(exported[name] - given[name]).max()) for name in given)
    assert 1e-5 < far < 3.1e-3


async def test_weights_are_read_once_when_they_are_sent(
    session_world: Any, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert work.weights is not None
    opened: list[str] = []
    real = Path.open

    def counting(self: Path, *args: Any, **options: Any) -> Any:
        if self.parent.name == "weights":
            opened.append(self.name)
        return real(self, *args, **options)

    async with session_world(work, approve="manual") as world:
        session = await world.submit(**_changes(work))
        monkeypatch.setattr(Path, "open", counting)
        for name in HOLDERS:
            await world.operator(name).decide(session, "approve", dataset="ehr")
        await world.completed(session)
        read = [*opened]  # before the search at the world's end reads everything
    # Its header, and then its bytes.
    assert read == [sha256(work.weights).hex()] * 2


@pytest.mark.parametrize("change", ["a byte", "two tensors", "its end"])
async def test_weights_changed_on_disk_after_submission_fail_the_session(
    session_world: Any, work: Work, given: Arrays, change: str
) -> None:
    """The disk is the platform's: what it shows when the GPU is filled must be what was submitted."""
    assert work.weights is not None
    async with session_world(work, approve="manual") as world:
        session = await world.submit(**_changes(work))
        path = world.folder / "orchestrator" / "library" / "weights" / sha256(work.weights).hex()
        raw = bytearray(path.read_bytes())
        if change == "a byte":
            raw[-3] ^= 1
        elif change == "its end":
            del raw[-4:]
        else:
            names = ("h.0.ln_1.bias", "h.0.ln_2.bias")  # of one shape: only what they hold tells them apart
            raw = bytearray(
                safetensors.numpy.save(given | dict(zip(names, (given[n] for n in reversed(names)), strict=True)))
            )
        path.write_bytes(raw)
        for name in HOLDERS:
            await world.operator(name).decide(session, "approve", dataset="ehr")
        view = await world.finish(session)
    assert view["phase"] == "FAILED"
    assert view["failure"]["code"] == ("weights-malformed" if change == "its end" else "stored-file-changed")
    assert view["step"] == 0


async def test_other_weights_in_the_gpu_than_given_fail_the_session(
    session_world: Any, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The GPU's own digest is compared: a byte lost on the way is no model."""
    pieces = WeightsMap.region_pieces
    monkeypatch.setattr(
        WeightsMap, "region_pieces", lambda self, size: ((at, bytes(len(data))) for at, data in pieces(self, size))
    )
    async with session_world(work) as world:
        session = await world.submit(**_changes(work))
        view = await world.finish(session)
    assert view["phase"] == "FAILED"
    assert view["failure"]["code"] == "initial-weights-mismatch"


def _with(given: Arrays, name: str, element: int, value: float) -> Arrays:
    changed = given[name].copy()
    changed.flat[element] = value
    return given | {name: changed}


def _renamed(given: Arrays) -> Arrays:
    return {("h.0.typo" if name == "h.0.ln_1.bias" else name): value for name, value in given.items()}


WRONG: dict[str, tuple[Any, str, str]] = {
    "missing": (lambda g: {k: v for k, v in g.items() if k != "ln_f.bias"}, "weights-mismatch", "'ln_f.bias' is not in"),
    "unknown": (lambda g: g | {"extra": np.zeros(1, np.float32)}, "weights-mismatch", "'extra' is in the weights file but not"),
    "renamed": (_renamed, "weights-mismatch", "'h.0.ln_1.bias' is not in"),
    "shape": (lambda g: g | {"wte.weight": g["wte.weight"].T.copy()}, "weights-mismatch", "'wte.weight' has another dtype or shape"),
    "nan": (lambda g: _with(g, "ln_f.bias", 3, np.nan), "weights-not-finite", "'ln_f.bias' holds a value that is not finite, element 3 of"),
    "infinity": (lambda g: _with(g, "wpe.weight", -1, -np.inf), "weights-not-finite", f"not finite, element {16 * T - 1} of {16 * T}"),
    "dtype": (lambda g: g | {"wpe.weight": g["wpe.weight"].astype(np.float64)}, "weights-mismatch", "'wpe.weight' has another"),
}  # fmt: skip


async def test_wrong_weights_are_refused_at_submission(session_world: Any, work: Work, given: Arrays) -> None:
    async with session_world(work) as world:
        await world.enrol()
        for case, (change, code, words) in WRONG.items():
            data = safetensors.numpy.save(change(given))
            await world.owner.upload_weights(data)
            with pytest.raises(GputError) as caught:
                await world.owner.submit(world.material.manifest(**_changes(replace(work, weights=data))))
            assert caught.value.code == code, case
            assert words in caught.value.detail, case
            assert "initial_weights" in caught.value.detail
            assert caught.value.status == 422
        good = work.weights or b""
        for data, code in (
            (b"\x80" * 64, "weights-malformed"),
            (good[:-4], "weights-malformed"),
            (good + b"x", "weights-malformed"),
        ):
            await world.owner.upload_weights(data)
            with pytest.raises(GputError) as caught:
                await world.owner.submit(world.material.manifest(**_changes(replace(work, weights=data))))
            assert caught.value.code == code
        with pytest.raises(GputError) as caught:
            await world.owner.submit(world.material.manifest(**_changes(work, initial_weights="cd" * 32)))
        assert caught.value.code == "unknown-weights"
        assert await world.owner.items("sessions") == []


async def test_weights_under_another_digest_are_refused_at_upload(session_world: Any, work: Work) -> None:
    async with session_world(work, holders=("city",)) as world:
        with pytest.raises(GputError) as caught:
            await world.owner._put(f"/v1/weights/{'ab' * 32}", work.weights)
        assert caught.value.code == "digest-mismatch"
        assert await world.owner.items("weights") == []
