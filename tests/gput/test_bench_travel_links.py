"""`gput bench travel`: both ends of a conventional transfer, a link that paces and counts real bytes, and the commands with processes."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest

from gput.__main__ import main
from gput.bench.travelling import Traffic
from gput.local.travel.link import HOST, Link
from gput.local.travel.sharing import Inbound, Outbound
from shared.crypto.hpke import OneTimeKey
from shared.errors import GputError


def transfer(folder: Path, length: int, monkeypatch: pytest.MonkeyPatch) -> tuple[bytes, list[bytes], Inbound]:
    monkeypatch.setattr("gput.local.travel.sharing.CHUNK_BYTES", 1000)
    data = os.urandom(length)
    (folder / "records").write_bytes(data + b"more")
    key = OneTimeKey.generate()
    outbound = Outbound(key.public, folder / "records", length)
    inbound = Inbound.opened(key, outbound.sealed_key)
    return data, [bytes(record) for record in outbound.records()], inbound


def test_a_transfer_arrives_whole_and_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, records, inbound = transfer(tmp_path, 3500, monkeypatch)
    opened = [inbound.open(record) for record in records]
    assert b"".join(plaintext for _, plaintext, _ in opened) == data
    assert [(offset, last) for offset, _, last in opened] == [(0, False), (1000, False), (2000, False), (3000, True)]
    assert not any(data[at : at + 16] in b"".join(records) for at in range(0, 3400, 100))
    with pytest.raises(GputError):
        inbound.open(records[-1])


@pytest.mark.parametrize("order", [(1,), (0, 0), (0, 2), (0, 3)])
def test_records_out_of_order_are_refused(
    order: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, records, inbound = transfer(tmp_path, 3500, monkeypatch)
    for index in order[:-1]:
        inbound.open(records[index])
    with pytest.raises(GputError) as caught:
        inbound.open(records[order[-1]])
    assert caught.value.code == "out-of-order"


def test_one_bit_of_a_record_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, records, inbound = transfer(tmp_path, 3500, monkeypatch)
    changed = bytearray(records[0])
    changed[100] ^= 1
    with pytest.raises(GputError) as caught:
        inbound.open(bytes(changed))
    assert caught.value.code == "tag-mismatch"
    inbound.open(records[0])


@pytest.mark.parametrize("mbit", [None, 100.0])
async def test_a_link_carries_and_counts_every_byte(mbit: float | None) -> None:
    sent = [os.urandom(70_000), b"x", os.urandom(300_000)]

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for message in sent:
            writer.write(await reader.readexactly(len(message)))
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(echo, HOST, 0)
    link = Link(lambda: f"http://{HOST}:{server.sockets[0].getsockname()[1]}")
    await link.open()
    link.pace(mbit)
    reader, writer = await asyncio.open_connection(HOST, int(link.url.rsplit(":", 1)[1]))
    for message in sent:
        writer.write(message)
        assert await reader.readexactly(len(message)) == message
    assert await reader.read() == b""
    writer.close()
    total = sum(map(len, sent))
    assert link.traffic == Traffic(total, total, len(sent))
    await link.close()
    server.close()


async def test_a_link_whose_target_is_away_ends_the_connection() -> None:
    link = Link(lambda: f"http://{HOST}:1")
    await link.open()
    reader, writer = await asyncio.open_connection(HOST, int(link.url.rsplit(":", 1)[1]))
    assert await reader.read() == b""
    writer.close()
    await link.close()
    assert link.traffic == Traffic()


# ---------------------------------------------------------------- command


@pytest.mark.parametrize("words", [
    ("--steps", "4"), ("--steps", "0,4"), ("--steps", "a,b"), ("--rates", ""), ("--rates", "-1"), ("--rates", "nan"), ("--rates", "inf"),
])  # fmt: skip
def test_nonsense_is_refused_before_anything_starts(words: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "travel", *words]) == 2
    assert words[0] in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.processes
def test_the_ablation_runs_every_row(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "ablation", "--steps", "16", "--times", "1", "--format", "jsonl"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["path"], row["overlap"], row["seal+open"]) for row in rows[:3]] == [
        ("re-encrypt", "off", 12), ("re-encrypt", "on", 12), ("direct", "on", 8),
    ]  # fmt: skip
    assert [(row["mode"], row["loads_ahead"]) for row in rows[3:6]] == [
        ("scoped", False), ("paper", False), ("direct", True),
    ]  # fmt: skip
    assert [row["chains"] for row in rows[6:]] == [1, 2, 4]
    assert all(row["seconds"] > 0 for row in rows[:3])


@pytest.mark.slow
@pytest.mark.processes
def test_both_ways_run_and_only_the_conventional_one_sends_records_between_machines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = tmp_path / "travel.json"
    words = ["--rates", "100", "--steps", "1,4", "--visits", "4", "--format", "jsonl", "--save", str(saved)]
    assert main(["bench", "travel", *words]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    counted = [row for row in rows if "between_vms" in row]
    assert len(counted) == 8
    for row in counted:
        conventional = row["way"] == "conventional"
        assert (row["between_vms"] > row["buffer"]) is conventional
        assert (row["orchestrator_gpu"] > row["buffer"]) is conventional
        # From one visit's end to another's: what was sealed ahead may have crossed before the first; then three visits' are counted.
        assert (row["holder_gpu"] > row["buffer"] / 2) is not conventional
        assert row["seal+open"] == (4 if conventional else row["seal+open"])
    few, many = (row["between_vms"] for row in counted if (row["way"], row["link"]) == ("travelling", "uncapped"))
    assert many < few + 200_000  # the longer visit carries 786 KB more
    assert len(json.loads(saved.read_text())["figures"]) == 8 * 2 + 4 + 4
