"""`gput bench transfer`: its sums, and one small run of it with a real agent and a real server."""

from __future__ import annotations

import json

import pytest

from gput.__main__ import main
from gput.bench import transfer_tables as tables
from gput.bench.figures import BENCHES, figures
from gput.bench.transfer_tables import Found, Stage, Transfer

GIGA = 10**9
BOUNCE = ((0.5, 0.25, 0.9, 8e9, 5e9), (0.25, 0.125, 0.7, 8e9, 5e9), (1.0, 0.5, 0.8, 8e9, 5e9))
HTTP = ((2.0, 1.0, 3.0, 1.25e9, 5e9), (1.0, 0.5, 3.0, 5e9, 2.5e9), (4.0, 2.0, 3.0, 1e9, 2.5e9))
FOUND = Found(
    GIGA, 10e9, 8e9, {"bounce": [Transfer(GIGA, *one) for one in BOUNCE], "http": [Transfer(GIGA, *one) for one in HTTP]},
    [Stage("leaf hashing", "GPU", 0.6), Stage("sealing", "holder", 0.2), Stage("reading ahead", "holder", 0.3, counts=False)],
)  # fmt: skip


def test_ratios_are_medians_against_the_limit_of_the_link_as_it_was_then() -> None:
    bounce, http = tables.links(FOUND)
    assert (bounce["gb_per_s"], bounce["moved_gb_per_s"], bounce["limit_gb_per_s"]) == (2.0, 4.0, 8.0)
    assert (bounce["ratio"], bounce["moved_ratio"]) == (0.25, 0.5)
    assert (bounce["memory_ratio"], bounce["moved_memory_ratio"]) == (0.4, 0.8)
    assert (http["gb_per_s"], http["limit_gb_per_s"]) == (0.5, 1.25)
    assert (http["ratio"], http["moved_ratio"]) == (0.25, 0.5)  # of 0.4, 0.2, 0.25 and 0.8, 0.4, 0.5
    assert (http["memory_ratio"], http["moved_memory_ratio"]) == (0.1, 0.2)


def test_stages_are_told_by_the_byte_and_what_is_done_beforehand_has_no_share() -> None:
    rows = tables.stages(FOUND)
    assert [row["ns_per_byte"] for row in rows] == [0.6, 0.2, 0.3]
    assert [row["share"] for row in rows] == ["75%", "25%", "beforehand"]


def test_every_figure_is_defined() -> None:
    found = tables.named(FOUND)
    units = {name: one.unit for name, one in figures("transfer", [found]).items()}
    assert set(units) == set(found)
    assert (units["bounce.ratio"], units["http.plain_gb_per_s"], units["sealing.stage_ns"]) == ("times", "GB/s", "ns")
    assert (found["bounce.processor_ns"], found["leaf-hashing.stage_ns"]) == (0.8, 0.6)


def test_what_goes_over_http_is_held_to_the_server() -> None:
    said = {
        link: BENCHES["transfer"].definition(f"{link}.moved_ratio")
        for link in ("http", "http-straight", "http-ahead", "bounce", "straight", "ahead")
    }
    assert [link for link, one in said.items() if one is not None and "server" in one.meaning] == [
        "http",
        "http-straight",
        "http-ahead",
    ]


@pytest.mark.slow
@pytest.mark.processes
def test_one_small_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "transfer", "--mebibytes", "5", "--times", "1", "--format", "jsonl"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    links = {row["link"]: row for row in rows if "link" in row}
    assert set(links) == {"bounce", "prepared", "straight", "ahead", "http", "http-straight", "http-ahead"}
    assert all(0 < row["ratio"] <= row["moved_ratio"] for row in links.values())
    assert {row["where"] for row in rows if "stage" in row} == {"holder", "GPU", "both"}
