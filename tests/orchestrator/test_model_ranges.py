"""A part of the finished model: what is written down of a request is what it is answered with, whatever its headers say."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request

from orchestrator.api import model as routes
from shared.canonical import sha256
from shared.errors import BadRequest
from shared.service.problems import MEDIA_TYPE
from tests.orchestrator.test_model_route import ALICE, house, model_in, received

CONTENT = os.urandom(1_200_000)
TAG = f'"{sha256(CONTENT).hex()}"'
WHOLE: tuple[int, slice] = 200, slice(None)
RANGES: dict[str, tuple[dict[str, str], tuple[int, slice]]] = {
    "nothing": ({}, WHOLE),
    "from its beginning": ({"range": "bytes=0-"}, (206, slice(None))),
    "from its middle": ({"range": "bytes=60-"}, (206, slice(60, None))),
    "a part": ({"range": "bytes=10-19"}, (206, slice(10, 20))),
    "a part over two pieces of it as it lies": ({"range": "bytes=1000000-1100000"}, (206, slice(1_000_000, 1_100_001))),
    "its first byte": ({"range": "bytes=0-0"}, (206, slice(0, 1))),
    "a part and more than there is": ({"range": "bytes=1199990-9999999"}, (206, slice(1_199_990, None))),
    "its end": ({"range": "bytes=-30"}, (206, slice(-30, None))),
    "a longer end than it has": ({"range": "bytes=-9999999"}, (206, slice(None))),
    "an end of sixteen digits": ({"range": f"bytes=-{'9' * 16}"}, (206, slice(None))),
    "up to a number of thousands of digits": ({"range": f"bytes=60-{'9' * 5000}"}, (206, slice(60, None))),
    "with spaces": ({"range": "Bytes = 10 - 19 ,"}, (206, slice(10, 20))),
    "several parts": ({"range": "bytes=0-1,5-6"}, WHOLE),
    "another unit": ({"range": "items=0-1"}, WHOLE),
    "a part of this file": ({"range": "bytes=10-19", "if-range": TAG}, (206, slice(10, 20))),
    "a part of another file": ({"range": "bytes=0-0", "if-range": '"x"'}, WHOLE),
    "a part of one that is about this": ({"range": "bytes=0-0", "if-range": f"W/{TAG}"}, WHOLE),
    "a part of one of another day": ({"range": "bytes=0-0", "if-range": "Thu, 01 Jan 1970 00:00:00 GMT"}, WHOLE),
    "a part that another file does not have": ({"range": "bytes=1200000-", "if-range": '"x"'}, WHOLE),
    "no range, and of this file": ({"if-range": TAG}, WHOLE),
}


def asked_with(headers: Mapping[str, str]) -> Request:
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    path, server = "/v1/sessions/s_a/model", ("orchestrator.test", 80)
    return Request(
        {"type": "http", "method": "GET", "path": path, "query_string": b"", "headers": raw, "server": server, "scheme": "http"}
    )  # fmt: skip


@pytest.mark.parametrize("which", RANGES)
async def test_what_is_written_down_is_what_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    """A byte was, where the whole was sent: whoever said If-Range had a model for one byte of law L9's counter."""
    headers, (status, part) = RANGES[which]
    request, parts = asked_with(headers), house(await model_in(tmp_path, CONTENT), monkeypatch, CONTENT)
    answer: Any = await routes.model("s_a", request, ALICE, parts)
    sent = await received(answer, headers=request.headers.raw)
    assert (sent[0]["status"], b"".join(one["body"] for one in sent[1:])) == (status, CONTENT[part])
    assert dict(sent[0]["headers"])[b"content-length"] == str(len(CONTENT[part])).encode()
    assert parts.house.fetches.record.await_args.kwargs["asked"] == len(CONTENT[part])


async def test_a_part_of_the_file_of_this_day_is_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = house(await model_in(tmp_path, CONTENT), monkeypatch, CONTENT)
    whole: Any = await routes.model("s_a", asked_with({}), ALICE, parts)
    whole.close()
    request = asked_with({"range": "bytes=0-0", "if-range": whole.headers["last-modified"]})
    answer: Any = await routes.model("s_a", request, ALICE, parts)
    sent = await received(answer, headers=request.headers.raw)
    assert (sent[0]["status"], sent[1]["body"]) == (206, CONTENT[:1])
    assert parts.house.fetches.record.await_args.kwargs["asked"] == 1


BEYOND = [
    "bytes=1200000-",
    "bytes=1400000-1400001",
    pytest.param(f"bytes={'9' * 5000}-", id="thousands of digits"),
    "bytes=-0",
]


@pytest.mark.parametrize("header", BEYOND)
async def test_a_part_that_it_does_not_have_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, header: str
) -> None:
    parts = house(await model_in(tmp_path, CONTENT), monkeypatch, CONTENT)
    request = asked_with({"range": header})
    sent = await received(await routes.model("s_a", request, ALICE, parts), headers=request.headers.raw)
    told = dict(sent[0]["headers"])
    assert (sent[0]["status"], told[b"content-range"]) == (416, b"bytes */1200000")
    assert (told[b"content-type"], json.loads(sent[1]["body"])["code"]) == (
        MEDIA_TYPE.encode(),
        "range-not-satisfiable",
    )
    parts.house.fetches.record.assert_not_awaited()


@pytest.mark.parametrize(
    "header", ["bytes=a-b", "bytes=5-2", "bytes=-", "bytes=", "bytes", "", "bytes=0-1,x", "bytes=0-1-2"]
)
async def test_what_cannot_be_told_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, header: str
) -> None:
    """It was written down as the whole, and answered in plain text."""
    parts = house(await model_in(tmp_path, CONTENT), monkeypatch, CONTENT)
    with pytest.raises(BadRequest) as refusal:
        await routes.model("s_a", asked_with({"range": header}), ALICE, parts)
    assert (refusal.value.code, refusal.value.status) == ("range-malformed", 400)
    parts.house.fetches.record.assert_not_awaited()
