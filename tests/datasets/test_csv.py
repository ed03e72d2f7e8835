"""CSV as a dataset: columns, refusals with line and reason, the converted copy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from data_holder.datasets import DatasetOptions, UnfitData, cache, cells, forget_converted, open_dataset
from shared.claims.records import RecordField, RecordSchema
from shared.claims.visit import CursorRange
from shared.errors import ConfigurationError

FLAT = RecordSchema(
    fields=(
        RecordField(name="features", dtype="float32", shape=(3,), min=-100, max=100),
        RecordField(name="target", dtype="int64", min=0, max=2),
    )
)


def read_csv(
    path: Path, text: str | bytes, schema: RecordSchema = FLAT, options: DatasetOptions | None = None
) -> list[tuple[list[float], int]]:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with open_dataset(path, schema, options=options or DatasetOptions()) as dataset:
        out = bytearray(dataset.records * dataset.record_bytes)
        dataset.read_into(CursorRange(start=0, count=dataset.records), out)
        rows = np.frombuffer(out, np.dtype([("f", "<f4", (3,)), ("t", "<i8")]))
        return [(row["f"].tolist(), int(row["t"])) for row in rows]


def test_csv_columns(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    wanted = [([1.0, 2.5, -3.0], 1), ([4.0, 5.0, 6e1], 2)]
    assert read_csv(path, 'a,label,b,c\n1,1,2.5,"-3"\n\n4,2,5,6e1\n') == wanted
    assert read_csv(path, b"\xef\xbb\xbfa,target,b,c\r\n1,1,2.5,-3\r\n4,2,5,60\r\n") == wanted
    assert read_csv(path, "a,cls,b,c\n1,1,2.5,-3\n4,2,5,60\n", options=DatasetOptions(label="cls")) == wanted
    assert (
        read_csv(
            path,
            "c;b;a;id;label\n-3;2.5;1;9;1\n60;5;4;9;2",
            options=DatasetOptions(delimiter=";", columns={"features": ["a", "b", "c"]}),
        )
        == wanted
    )
    assert read_csv(tmp_path / "t.tsv", "a\tlabel\tb\tc\n1\t1\t2.5\t-3\n4\t2\t5\t60\n") == wanted


def test_a_named_label_wins_over_the_column_of_the_fields_own_name(tmp_path: Path) -> None:
    path, text = tmp_path / "t.csv", "target,cls,a,b\n0,1,4,5\n"
    three = {"features": ["a", "b", "a"]}
    assert read_csv(path, text, options=DatasetOptions(columns=three)) == [([4.0, 5.0, 4.0], 0)]
    named = DatasetOptions(label="cls", columns=three, cache_dir=tmp_path / "cache")
    assert read_csv(path, text, options=named) == [([4.0, 5.0, 4.0], 1)]
    assert read_csv(path, text, options=named) == [([4.0, 5.0, 4.0], 1)]  # the converted copy


BAD_OPTIONS: dict[str, tuple[DatasetOptions, str, str]] = {
    "a named label that is no column": (DatasetOptions(label="cls"), "data-missing-field", "no column called 'cls'"),
    "columns of no field": (DatasetOptions(columns={"nofield": ["a"]}), "data-bad-option", "does not declare"),
    "two words on the label": (
        DatasetOptions(label="a", columns={"target": ["target"]}), "data-bad-option", "a label column is named",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", BAD_OPTIONS)
def test_what_is_said_of_columns_counts_or_is_refused(tmp_path: Path, fault: str) -> None:
    options, code, reason = BAD_OPTIONS[fault]
    with pytest.raises(UnfitData) as refused:
        read_csv(tmp_path / "t.csv", "a,target,b,c\n1,1,2,3\n", options=options)
    assert refused.value.finding.code == code
    assert reason in refused.value.finding.reason


@pytest.mark.parametrize(
    "options", [found[0] for found in BAD_OPTIONS.values() if found[1] == "data-bad-option"], ids=str
)
def test_what_is_held_to_an_approved_root_is_read_as_without_such_an_option(
    tmp_path: Path, options: DatasetOptions
) -> None:
    text = "a,target,b,c\n1,1,2,3\n"
    assert read_csv(tmp_path / "t.csv", text, options=replace(options, insist=False)) == [([1.0, 2.0, 3.0], 1)]


def test_a_label_that_could_be_of_two_fields_is_of_neither(tmp_path: Path) -> None:
    """As releases of before read it; a new approval is told to state the columns."""
    pair = RecordSchema(fields=(RecordField(name="p", dtype="int64"), RecordField(name="q", dtype="int64")))
    (tmp_path / "t.csv").write_text("p,q,outcome\n1,2,3\n")
    options = DatasetOptions(label="outcome", insist=False)
    with open_dataset(tmp_path / "t.csv", pair, options=options) as dataset:
        dataset.read_into(CursorRange(start=0, count=1), out := bytearray(16))
    assert np.frombuffer(out, "<i8").tolist() == [1, 2]
    with pytest.raises(UnfitData) as refused:
        open_dataset(tmp_path / "t.csv", pair, options=replace(options, insist=True))
    assert refused.value.code == "data-bad-option"


HEAD = "a,label,b,c\n"


BAD_CSV: dict[str, tuple[str | bytes, str, int | None, str]] = {
    "no label column": ("a,b,c,d\n1,2,3,4\n", "data-missing-field", 1, "no column called 'label'"),
    "too few features": ("a,label,b\n1,2,3\n", "data-wrong-shape", 1, "2 columns for a field of 3"),
    "doubled header": ("a,label,a,c\n1,2,3,4\n", "data-malformed", 1, "column twice"),
    "header only": (HEAD, "data-empty", None, "no records"),
    "blank lines only": ("\n\n", "data-empty", None, "no header"),
    "nothing": ("", "data-empty", None, "not one byte"),
    "word": (HEAD + "1,1,2,3\n1,1,pear,3\n", "data-wrong-type", 3, "cell 3 is no number"),
    "empty cell": (HEAD + "1,1,,3\n", "data-wrong-type", 2, "cell 3 is empty"),
    "digits that only programs group": (HEAD + "1,1,2,3\n1,1,1_5,3\n", "data-wrong-type", 3, "cell 3 is no number"),
    "label that only programs group": (HEAD + "1,0_1,2,3\n", "data-wrong-type", 2, "cell 2 is no whole number"),
    "digits of another script": (HEAD + "1,1,\u0661,3\n", "data-wrong-type", 2, "cell 3 is no number"),
    "label in another script": (HEAD + "1,\u0661,2,3\n", "data-wrong-type", 2, "cell 2 is no whole number"),
    "a space that is none": (HEAD + "1,1,\u00a02,3\n", "data-wrong-type", 2, "cell 3 is no number"),
    "fractional label": (HEAD + "1,1.5,2,3\n", "data-wrong-type", 2, "no whole number"),
    "label of 100 bits": (HEAD + f"1,{2**100},2,3\n", "data-wrong-type", 2, "no whole number"),
    "label out of range": (HEAD + "1,1,2,3\n1,7,2,3\n", "data-out-of-range", 3, "the value lies outside [0, 2]"),
    "nan": (HEAD + "1,1,2,3\n\n1,1,2,nan\n", "data-out-of-range", 4, "element 2 is not finite"),
    "inf": (HEAD + "1,1,2,-inf\n", "data-out-of-range", 2, "element 2 is not finite"),
    "beyond float32": (HEAD + "1,1,2,1e300\n", "data-out-of-range", 2, "element 2 is not finite"),
    "feature out of range": (HEAD + "1,1,2,101\n", "data-out-of-range", 2, "element 2 lies outside [-100, 100]"),
    "short row": (HEAD + "1,1,2\n", "data-malformed", 2, "has 3 cells where the header has 4"),
    "long cell": (HEAD + "1," + "9" * 5000 + ",2,3\n", "data-wrong-type", 2, "cell 2 is no whole number"),
    "open quote": (HEAD + '1,1,2,"3\n1,1,2,3', "data-malformed", 3, "well-formed"),
    "not utf-8": (HEAD.encode() + b"1,1,2,\xff\n", "data-malformed", 1, "UTF-8"),
}


@pytest.mark.parametrize("fault", BAD_CSV)
def test_csv_is_refused_with_line_and_reason(tmp_path: Path, fault: str) -> None:
    text, code, line, reason = BAD_CSV[fault]
    with pytest.raises(UnfitData) as refused:
        read_csv(tmp_path / "t.csv", text, options=DatasetOptions(cache_dir=tmp_path / "cache"))
    finding = refused.value.finding
    assert (finding.code, finding.row, finding.file) == (code, line, "t.csv")
    assert reason in finding.reason
    assert (
        refused.value.__suppress_context__ or refused.value.__context__ is None
    )  # a cause could quote a value in a log
    assert not list((tmp_path / "cache").glob("*.records")) + list((tmp_path / "cache").glob("*.partial"))


def test_csv_findings_are_gathered_over_blocks_and_quote_nothing(tmp_path: Path) -> None:
    rows = [f"{i % 90},{i % 3},0.5,1" for i in range(10_000)]
    rows[17], rows[5000], rows[9999] = "tomato,1,2,3", "1,1,31337,3", "1,1,2"
    with pytest.raises(UnfitData) as refused:
        read_csv(tmp_path / "t.csv", HEAD + "\n".join(rows))
    assert [f.row for f in refused.value.findings] == [19, 5002, 10001]
    everything = str(refused.value.findings) + refused.value.detail
    assert "tomato" not in everything
    assert "31337" not in everything


def test_what_is_said_of_a_file_of_the_release_before_is_not_believed(tmp_path: Path) -> None:
    """It read `1_5` as 15, and kept that."""
    path, options = tmp_path / "t.csv", DatasetOptions(cache_dir=tmp_path / "cache")
    with pytest.MonkeyPatch.context() as before:
        before.setattr(cache, "CONVERSION", 1)
        before.setattr(cells, "_plain", lambda text: True)
        assert read_csv(path, HEAD + "1,1,1_5,3\n", options=options) == [([1, 15, 3], 1)]
    with pytest.raises(UnfitData) as refused:
        read_csv(path, HEAD + "1,1,1_5,3\n", options=options)
    assert refused.value.code == "data-wrong-type"
    assert forget_converted(tmp_path / "cache", [path]) == 1
    assert not list((tmp_path / "cache").iterdir())


def test_numbers_that_everybody_reads_so_are_read(tmp_path: Path) -> None:
    rows = "+1, 2 ,1E1,0.5\n-1,0,.5,1.\n"
    assert read_csv(tmp_path / "t.csv", HEAD + rows) == [([1, 10, 0.5], 2), ([-1, 0.5, 1], 0)]


def test_csv_is_converted_once_and_again_when_it_changes(tmp_path: Path) -> None:
    path, cache = tmp_path / "t.csv", tmp_path / "deep" / "cache"
    options = DatasetOptions(cache_dir=cache)
    first = read_csv(path, HEAD + "1,1,2,3\n", options=options)
    (kept,) = cache.glob("*.records")
    born = kept.stat().st_ino
    assert kept.stat().st_mode & 0o077 == 0
    assert cache.stat().st_mode & 0o077 == 0
    with open_dataset(path, FLAT, options=options):
        assert [p.stat().st_ino for p in cache.glob("*.records")] == [born]
    second = read_csv(path, HEAD + "1,1,2,3\n4,0,5,6\n", options=options)
    assert (len(first), len(second)) == (1, 2)
    assert len(list(cache.glob("*.records"))) == 1


def test_what_was_converted_goes_with_its_source(tmp_path: Path) -> None:
    """It holds the records, and would outlive their deletion."""
    cache, names = tmp_path / "cache", ("named.csv", "folder/inside.csv", "forgotten.csv", "gone.csv")
    options = DatasetOptions(cache_dir=cache)
    (tmp_path / "folder").mkdir()
    for name in names:
        read_csv(tmp_path / name, HEAD + "1,1,2,3\n", options=options)
    (tmp_path / "link.csv").symlink_to(tmp_path / "named.csv")
    (cache / ("00" * 20 + ".records")).write_bytes(b"of a release that named them otherwise")
    (tmp_path / "gone.csv").unlink()
    datasets = [tmp_path / "link.csv", tmp_path / "folder", tmp_path / "gone.csv"]
    assert forget_converted(cache, datasets) == 3
    assert len(list(cache.glob("*.records"))) == 2
    assert forget_converted(cache, datasets) == 0
    assert forget_converted(tmp_path / "absent", datasets) == 0
    for name in ("named.csv", "folder/inside.csv"):
        with open_dataset(tmp_path / name, FLAT, options=options):
            assert len(list(cache.glob("*.records"))) == 2  # nothing was converted anew


def test_unusable_cache_is_said_plainly(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="cache") as refused:
        read_csv(tmp_path / "t.csv", HEAD + "1,1,2,3\n", options=DatasetOptions(cache_dir=tmp_path / "file"))
    assert refused.value.code == "dataset-cache"


@given(
    rows=st.lists(
        st.tuples(st.lists(st.floats(-100, 100, width=32), min_size=3, max_size=3), st.integers(0, 2)),
        min_size=1,
        max_size=30,
    )
)
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
def test_csv_round_trip(tmp_path: Path, rows: list[tuple[list[float], int]]) -> None:
    text = HEAD + "".join(f"{f[0]!r},{label},{f[1]!r},{f[2]!r}\n" for f, label in rows)
    assert read_csv(tmp_path / "t.csv", text) == rows
