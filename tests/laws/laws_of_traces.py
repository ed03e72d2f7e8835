"""Monitors of laws L6 and L9, and of keys at rest (design 4.5): what the host can see on wires, disks and in logs."""

from __future__ import annotations

from collections.abc import Iterator

from shared.names import RegionKind, holder_port
from shared.wire import gpu
from tests.laws.case import Case, Checks
from tests.laws.witness import Message, Shown
from tests.world.world_memory import content
from tests.world.world_recorder import GPU, Sealed
from tests.world.world_search import Search, disguises

MODEL_LINK = {"orchestrator", "agent"}
GAP = b"\xff\x00\xff"


def law_6_no_window_of_a_record_outside(case: Case) -> Checks:
    """No record, in no common disguise, on any wire (lost messages, addresses and headers too), in any file, log, table or error."""
    check = case.outside
    for where, data in [*_links(case.new_traffic()), ("a log", case.new_words()), *case.changed_files()]:
        for holder, needles in case.records.items():
            found = needles.outside.find(data)
            check(not found, f"{len(found)} windows of {holder}'s records are in {where}")
    return check


def _links(messages: list[Message]) -> Iterator[tuple[str, bytes]]:
    """All that went over each link, as one piece."""
    for client, server in sorted({(m.client, m.server) for m in messages}):
        pieces = [m.data for m in messages if (m.client, m.server) == (client, server)]
        yield f"messages between {client} and {server}", GAP.join(pieces)


def law_9_dataset_and_model_stay_on_their_links(case: Case) -> Checks:
    """Sealed or not: what a holder seals for the GPU goes from that holder to the GPU alone, and what the GPU seals, or the committed
    model in clear, goes between orchestrator and GPU alone. (The owner's own link carries the initial and the released model.)"""
    check = Checks()
    shown = {event.key: event.grant.holder for event in case.timeline if isinstance(event, Shown)}
    sealed = [event for event in case.timeline if isinstance(event, Sealed)]
    for holder in sorted(set(shown.values())):
        heads = [event.head for event in sealed if shown.get(event.key) == holder]
        away = [m for m in case.witness.traffic if (m.client, m.server) != (holder_port(holder), "agent")]
        _absent(check, f"{holder}'s sealed records", heads, away)
    away = [m for m in case.witness.traffic if {m.client, m.server} != MODEL_LINK]
    _absent(check, "what the GPU sealed", [event.head for event in sealed if event.by == GPU], away)
    inner = [m for m in case.witness.traffic if m.client != "owner"]
    _absent(check, "the model", list(_models(case)), inner)
    return check


def _absent(check: Checks, what: str, needles: list[bytes], messages: list[Message]) -> None:
    search = Search(piece for needle in needles for piece in disguises(needle, 8))
    for where, data in _links(messages):
        found = search.find(data)
        check(not found, f"{what} can be read in {where} ({len(found)} pieces)")


def _models(case: Case) -> Iterator[bytes]:
    """Every committed model in windows that say something: no run of zeros, nothing that the owner sent in."""
    seen: set[bytes] = set()
    for event in case.witness.ran(gpu.Commit):
        model = content(event.after, [place for place in event.places if place.kind is RegionKind.MODEL])
        for at in range(0, len(model), 16):
            piece = model[at : at + 16]
            if len(set(piece)) > 8 and piece not in seen:
                seen.add(piece)
                yield piece


def no_key_at_rest_or_on_a_wire(case: Case) -> Checks:
    """No key that anybody sealed or opened under lies in a file or a log or goes over a wire, but inside what is sealed (design 4.5)."""
    check = Checks()
    search = Search(piece for key in case.witness.keys.values() for piece in disguises(key, 8))
    for where, data in [*_links(case.witness.traffic), ("a log", case.words.getvalue().encode()), *case.files()]:
        found = search.find(data)
        check(not found, f"{len(found)} pieces of keys are in {where}")
    return check
