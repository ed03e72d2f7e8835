"""Arrays and CSV: records are the fields' bytes end to end, whatever container they came in."""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from data_holder.datasets import DatasetOptions, UnfitData, open_dataset
from shared.claims.records import RecordField, RecordSchema
from shared.claims.visit import CursorRange
from shared.protocol.record_order import order

SCHEMA = RecordSchema(
    fields=(
        RecordField(name="x", dtype="float32", shape=(2, 3), min=-10, max=10),
        RecordField(name="y", dtype="int64", min=0, max=9),
    )
)


N = 23


def arrays(n: int = N) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    return {"x": rng.normal(size=(n, 2, 3)).astype(np.float32), "y": rng.integers(0, 10, n)}


def records(data: dict[str, np.ndarray]) -> list[bytes]:
    pairs = zip(data["x"], data["y"], strict=True)
    return [x.astype("<f4").tobytes() + np.asarray(y).astype("<i8").tobytes() for x, y in pairs]


def write(folder: Path, kind: str, data: dict[str, np.ndarray]) -> Path:
    path = (
        folder
        / {"npz": "d.npz", "npz-compressed": "d.npz", "safetensors": "d.safetensors", "npy": "d", "csv": "d.csv"}[kind]
    )
    if kind == "npz":
        np.savez(path, allow_pickle=False, **data)
    elif kind == "npz-compressed":
        np.savez_compressed(path, allow_pickle=False, **data)
    elif kind == "safetensors":
        save_file(data, path, metadata={"made": "by a test"})
    elif kind == "npy":
        path.mkdir()
        for name, array in data.items():
            np.save(path / f"{name}.npy", array)
    else:
        rows = [",".join(["label", *(f"f{i}" for i in range(6))])]
        for x, y in zip(data["x"], data["y"], strict=True):
            rows.append(",".join([str(y), *(repr(float(v)) for v in x.ravel())]))
        path.write_text("\n".join(rows) + "\n")
    return path


KINDS = ["npz", "npz-compressed", "safetensors", "npy", "csv"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_container_gives_the_same_records(tmp_path: Path, kind: str) -> None:
    data = arrays()
    expected = records(data)
    options = DatasetOptions(cache_dir=tmp_path / "cache")
    with open_dataset(write(tmp_path, kind, data), SCHEMA, options=options) as dataset:
        dataset.check()
        for way in ("sequential", "shuffled"):
            cursor = CursorRange(start=17, count=50, order=way, seed=4)
            positions = np.arange(17, 67, dtype=np.int64)
            which = positions % N if way == "sequential" else order(4, N).records(positions)
            out = bytearray(50 * 32)
            dataset.read_into(cursor, out)
            assert bytes(out) == b"".join(expected[i] for i in which.tolist())
        statistics = dataset.statistics()
        assert (statistics.records, statistics.bytes) == (N, N * 32)
        assert statistics.fields["y"] == (data["y"].min(), data["y"].max())
        assert statistics.fields["x"] == pytest.approx((float(data["x"].min()), float(data["x"].max())))


@pytest.mark.parametrize("kind", ["npz", "npz-compressed", "safetensors", "npy"])
def test_out_of_range_and_not_finite_name_file_and_row(tmp_path: Path, kind: str) -> None:
    data = arrays()
    data["x"][5, 1, 0], data["x"][9, 0, 2], data["y"][20] = np.nan, 987.25, 77
    with open_dataset(write(tmp_path, kind, data), SCHEMA) as dataset:
        found, _ = dataset.scan()
        assert [(f.field, f.row, f.code) for f in found] == [
            ("x", 5, "data-out-of-range"), ("x", 9, "data-out-of-range"), ("y", 20, "data-out-of-range"),
        ]  # fmt: skip
        assert found[0].reason == "element 3 is not finite"
        assert found[1].reason == "element 2 lies outside [-10, 10]"
        assert found[2].reason == "the value lies outside [0, 9]"
        with pytest.raises(UnfitData) as refused:
            dataset.check()
        assert "row 5" in refused.value.detail
        assert "987" not in refused.value.detail + str(found)


@given(bad=st.floats(), at=st.integers(0, N - 1), low=st.floats(-5, 0), high=st.floats(0, 5))
@settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
def test_a_value_is_refused_exactly_when_it_breaks_the_rule(
    tmp_path: Path, bad: float, at: int, low: float, high: float
) -> None:
    schema = RecordSchema(fields=(RecordField(name="x", dtype="float32", min=low, max=high),))
    values = np.zeros(N, np.float32)
    with np.errstate(over="ignore"):
        values[at] = bad
    path = tmp_path / f"{os.urandom(5).hex()}.npy"
    np.save(path, values)
    fits = bool(np.isfinite(values[at]) and np.float32(low) <= values[at] <= np.float32(high))
    with open_dataset(path, schema) as dataset:
        found, _ = dataset.scan()
        assert [f.row for f in found] == ([] if fits else [at])


@given(
    source=st.sampled_from(["u1", "i1", "u2", "<i4", ">i4", "?"]), low=st.integers(-70000, 70000), span=st.integers(0, 140000),
    values=st.lists(st.integers(0, 2**32), min_size=1, max_size=20),
)  # fmt: skip
@settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
def test_integer_ranges_of_every_width(tmp_path: Path, source: str, low: int, span: int, values: list[int]) -> None:
    schema = RecordSchema(fields=(RecordField(name="x", dtype="int64", min=low, max=low + span),))
    stored = np.array(values, np.uint64).astype(source)
    path = tmp_path / f"{os.urandom(5).hex()}.npy"
    np.save(path, stored)
    broken = [i for i, value in enumerate(stored.tolist()) if not low <= int(value) <= low + span]
    with open_dataset(path, schema) as dataset:
        found, statistics = dataset.scan()
        assert [f.row for f in found] == broken
        kept = [int(v) for v in stored.tolist() if low <= int(v) <= low + span]
        assert statistics.fields == ({"x": (min(kept), max(kept))} if kept else {})


def test_narrow_floats_are_judged_as_the_gpu_will_see_them(tmp_path: Path) -> None:
    np.save(tmp_path / "h.npy", np.array([0.1], np.float16))  # 0.09998 in float32
    with open_dataset(
        tmp_path / "h.npy", RecordSchema(fields=(RecordField(name="x", dtype="float32", min=0.1),))
    ) as dataset:
        assert [f.row for f in dataset.scan()[0]] == [0]


def test_lossless_types_are_converted_and_others_refused(tmp_path: Path) -> None:
    schema = RecordSchema(fields=(RecordField(name="x", dtype="int64", shape=(2,)),))
    for number, dtype in enumerate([">i4", "u1", "?", "<u4"]):
        np.save(tmp_path / f"{number}.npy", np.array([[0, 1], [1, 1]], dtype))
        with open_dataset(tmp_path / f"{number}.npy", schema) as dataset:
            out = bytearray(32)
            dataset.read_into(CursorRange(start=0, count=2), out)
            assert np.frombuffer(out, "<i8").tolist() == [0, 1, 1, 1]
    np.save(tmp_path / "f.npy", np.array([[0.5, 1]]))
    with pytest.raises(UnfitData, match="float64, which int64 does not hold"):
        open_dataset(tmp_path / "f.npy", schema)
    np.save(tmp_path / "u8.npy", np.array([[1, 1]], "u8"))
    with pytest.raises(UnfitData, match="uint64"):
        open_dataset(tmp_path / "u8.npy", schema)


def test_fortran_order(tmp_path: Path) -> None:
    values = np.asfortranarray(np.arange(12, dtype=np.int32).reshape(3, 4))
    np.save(tmp_path / "f.npy", values)
    with open_dataset(
        tmp_path / "f.npy", RecordSchema(fields=(RecordField(name="x", dtype="int32", shape=(4,)),))
    ) as dataset:
        out = bytearray(48)
        dataset.read_into(CursorRange(start=0, count=3), out)
        assert out == np.arange(12, dtype="<i4").tobytes()


BAD_ARRAYS: dict[str, tuple[dict[str, Any], str, str]] = {
    "missing": ({"x": arrays()["x"]}, "data-missing-field", "no array for y"),
    "shape": ({**arrays(), "x": arrays()["x"].reshape(N, 6)}, "data-wrong-shape", r"\(23, 6\)"),
    "counts": ({**arrays(), "y": arrays()["y"][:-1]}, "data-wrong-shape", "22 records where .* has 23"),
    "empty": (arrays(0), "data-empty", "no records"),
    "scalar": ({**arrays(), "y": np.int64(3)}, "data-wrong-shape", r"shape \(\)"),
    "type": ({**arrays(), "x": arrays()["x"].astype(np.float64)}, "data-wrong-type", "float64"),
}


@pytest.mark.parametrize("fault", BAD_ARRAYS)
@pytest.mark.parametrize("kind", ["npz", "safetensors"])
def test_arrays_that_do_not_fit(tmp_path: Path, kind: str, fault: str) -> None:
    data, code, message = BAD_ARRAYS[fault]
    path = write(tmp_path, kind, {name: np.asarray(array) for name, array in data.items()})
    with pytest.raises(UnfitData, match=message) as refused:
        open_dataset(path, SCHEMA)
    assert refused.value.code == code
    assert refused.value.finding.file.startswith("d.")


def test_pickles_are_never_run(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[object, ...]:
            return os.mkdir, (str(tmp_path / "exploded"),)

    one = RecordSchema(fields=(RecordField(name="x", dtype="float32"),))
    np.save(tmp_path / "x.npy", np.array([Bomb()], dtype=object), allow_pickle=True)
    np.savez(tmp_path / "x.npz", x=np.array([Bomb()], dtype=object))
    for name in ("x.npy", "x.npz"):
        with pytest.raises(UnfitData, match="something else than plain numbers"):
            open_dataset(tmp_path / name, one)
    assert not (tmp_path / "exploded").exists()


@given(data=st.data())
@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
def test_damaged_containers_are_refused_or_read_never_worse(tmp_path: Path, data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(["npz", "npz-compressed", "safetensors"]))
    path = tmp_path / f"{kind}-{os.urandom(5).hex()}"
    path.mkdir()
    whole = write(path, kind, arrays(3))
    content = bytearray(whole.read_bytes())
    for _ in range(data.draw(st.integers(0, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    whole.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    try:
        with open_dataset(whole, SCHEMA) as dataset:
            dataset.scan()
            dataset.read_into(CursorRange(start=0, count=3), bytearray(96))
    except UnfitData:
        pass


# CSV ---------------------------------------------------------------------------------------------------------------------------------


def test_zip_member_with_extra_fields(tmp_path: Path) -> None:
    member = io.BytesIO()
    np.save(member, np.arange(5, dtype=np.int32))
    info = zipfile.ZipInfo("x.npy")
    info.extra = b"\x99\x99\x04\x00abcd"
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr(info, member.getvalue())
    with open_dataset(tmp_path / "x.npz", RecordSchema(fields=(RecordField(name="x", dtype="int32"),))) as dataset:
        out = bytearray(20)
        dataset.read_into(CursorRange(start=0, count=5), out)
        assert np.frombuffer(out, "<i4").tolist() == [0, 1, 2, 3, 4]
