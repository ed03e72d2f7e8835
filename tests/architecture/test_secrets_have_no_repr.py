"""Secrets have no repr: what a command, an answer or a record carries of them is not to be read where one of these is logged or shown."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from pkgutil import walk_packages

import shared.wire
from shared.wire.base import Wire
from shared.wire.copy import Closing
from shared.wire.gpu import Checkpoint, OpenEpoch
from shared.wire.gpu_answers import GrantInstalled

SECRET = re.compile(r"(^|_)(key|entropy|salt|secret|iv_mask)$")
"""A public key stands in none of these messages: they pass between two ends that share a key already."""


def wires(base: type[Wire] = Wire) -> Iterator[type[Wire]]:
    for each in base.__subclasses__():
        yield each
        yield from wires(each)


def test_no_message_shows_what_it_carries_of_a_secret() -> None:
    for module in walk_packages(shared.wire.__path__, "shared.wire."):
        import_module(module.name)
    secret = {
        f"{wire.__name__}.{name}": field.repr
        for wire in wires()
        for name, field in wire.model_fields.items()
        if SECRET.search(name)
    }
    assert len(secret) >= 9  # the rule is about something
    assert not {name for name, shown in secret.items() if shown}


def test_a_message_is_shown_without_its_secrets() -> None:
    hidden = b"\xaa" * 32
    shown = [
        Checkpoint(key=hidden, name="k/1", length=1), OpenEpoch(epoch=1, entropy=hidden),
        GrantInstalled(engine=1, channel_counter=1, iv_mask=hidden[:12]),
        Closing(
            visit="v_" + "0" * 16, chunks=1, records=1, length=1, salt=hidden, commitment="0" * 64, dataset_salt=hidden, proof=b"",
        ),
    ]  # fmt: skip
    for message in shown:
        assert "xaa" not in f"{message!r} {message}"
    assert shown[0].key == hidden  # type: ignore[attr-defined]  # the one that has it
