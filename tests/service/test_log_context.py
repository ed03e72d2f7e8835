"""Log lines say whose they are in every task and thread, and tell nothing that was planted in them."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import Iterator

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from shared.crypto.secret import Secret
from shared.errors import GputError, Refused
from shared.service.logging import bind, bind_afresh, configure_logging, get_logger
from tests.service.service_world import World

PLANTED = "pl4nted-s3cret-0123456789"
PEM = (
    Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
    .private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    .decode()
)


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    configure_logging("debug", "json", stream, {"party": "north"})
    yield stream
    configure_logging("warning", "json")


def lines(log: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in log.getvalue().splitlines()]


async def test_tasks_take_their_context_along_and_no_request(log: io.StringIO) -> None:
    async def work() -> None:
        await asyncio.sleep(0)
        get_logger("work").info("done")

    with bind(request_id="req-1", session="another"):
        with bind_afresh(session="s1"):
            task = asyncio.create_task(work())
        with bind(visit="v1", party="city"):
            inner = asyncio.create_task(asyncio.to_thread(get_logger("thread").info, "read"))
        await asyncio.gather(task, inner)
        get_logger("after").info("still")
    by_name = {str(line["component"]): line for line in lines(log)}
    assert (by_name["work"]["session"], by_name["work"]["party"]) == ("s1", "north")
    assert "request_id" not in by_name["work"]
    assert [by_name["thread"][name] for name in ("session", "visit", "party", "request_id")] == [
        "another",
        "v1",
        "city",
        "req-1",
    ]
    assert by_name["after"]["request_id"] == "req-1"


async def test_a_requests_lines_say_what_its_path_says(world: World, log: io.StringIO) -> None:
    async with world.client(None) as client:
        await client.get("/v1/sessions/s_abc/visits/v_1")
        await client.get("/v1/requests/s_def")
        await client.get("/sessions/s_none")
    told = [line for line in lines(log) if line["event"] == "request"]
    assert (told[0]["session"], told[0]["visit"], told[0]["party"]) == ("s_abc", "v_1", "north")
    assert told[1]["session"] == "s_def"
    assert "session" not in told[2]


def test_a_librarys_lines_have_the_context_too(log: io.StringIO) -> None:
    with bind(session="s1"):
        logging.getLogger("library").warning("something of its own")
    assert (lines(log)[0]["session"], lines(log)[0]["party"]) == ("s1", "north")


class Broken:
    def __repr__(self) -> str:
        return PLANTED


PLACES = [
    *({name: PLANTED} for name in ("visit_key", "secret", "access_token", "Authorization", "cookie", "db_password", "body", "entropy")),
    {"data": PLANTED.encode()}, {"rows": [PLANTED.encode()]}, {"deep": {"deeper": {"token": PLANTED}}}, {"thing": Broken()},
    {"thing": Secret(PLANTED.encode())}, {"exc_info": ValueError(PLANTED)}, {"error": ValueError(PLANTED)}, {"set": {PLANTED.encode()}},
    {"url": f"postgresql+psycopg://gput:{PLANTED}@database/gput"}, {"header": f"Bearer {PLANTED}"}, {"detail": f"x: Basic {PLANTED}"},
    {"text": PEM}, {"nested": [{"text": f"before {PEM} after"}]},
]  # fmt: skip


@pytest.mark.parametrize("fields", PLACES, ids=lambda fields: next(iter(fields)))
@pytest.mark.parametrize("style", ["json", "console"])
def test_nothing_planted_in_a_field_comes_out(fields: dict[str, object], style: str) -> None:
    stream = io.StringIO()
    configure_logging("debug", style, stream)  # type: ignore[arg-type]
    try:
        get_logger("test").error("something", **fields)
        with bind(**{"context_token": PLANTED}):
            get_logger("test").error("something")
    finally:
        configure_logging("warning", "json")
    assert stream.getvalue().count("something") == 2
    assert PLANTED not in stream.getvalue()
    assert PEM.splitlines()[1] not in stream.getvalue()


def test_nothing_planted_in_an_event_or_a_librarys_arguments_comes_out(log: io.StringIO) -> None:
    get_logger("test").warning(f"asked postgresql://gput:{PLANTED}@database/gput")
    logging.getLogger("library").error("sent %s with %s", f"Bearer {PLANTED}", PEM)
    assert len(lines(log)) == 2
    assert PLANTED not in log.getvalue()
    assert PEM.splitlines()[1] not in log.getvalue()


def test_no_path_of_an_exception_tells_its_message(log: io.StringIO) -> None:
    def fail() -> None:
        try:
            raise KeyError(PLANTED)
        except KeyError as error:
            error.add_note(PLANTED)
            raise ValueError(PLANTED, PLANTED.encode()) from error

    try:
        fail()
    except ValueError as error:
        get_logger("a").error("one", exc_info=True)
        get_logger("a").exception("two")
        get_logger("a").error("three", exc_info=error)
        logging.getLogger("b").exception("four")
        group = ExceptionGroup(PLANTED, [error, Refused("a policy says no", code="refused")])
        get_logger("a").error("five", exc_info=group)
        get_logger("a").error("six", exc_info=OSError(5, "Input/output error", PLANTED))
        get_logger("a").error("seven", exc_info=GputError("the database postgresql://u:" + PLANTED + "@h/d is away"))
    told = lines(log)
    assert [line["event"] for line in told] == ["one", "two", "three", "four", "five", "six", "seven"]
    assert all("exception" in line for line in told)
    assert PLANTED not in log.getvalue()
