"""The grant table: what each visit key may do, and how far it has got. Knows no key derivation, no memory and no port's owner."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from gpu_agent.hardware.regions import RegionTable
from shared.claims.visit import Grant
from shared.crypto.chains import OpeningChains
from shared.crypto.stock_channel import StockChannel
from shared.errors import ProtocolViolation
from shared.names import TravelMode, holder_port
from shared.protocol.membership import proof_limit
from shared.protocol.travel import TRAVEL
from shared.wire.copy import copy_context

FIRST_ENGINE: Final = 1
"""LCE0 is the orchestrator's; visit keys go round LCE1..LCE7."""
ENGINES: Final = 7


@dataclass
class LiveGrant:
    """An installed grant until its epoch is killed. `accepted` counts copy records, `received` the bytes of records among them.

    `total` is the first copy record's, which all others repeat; `proof` gathers the membership proof; `dead` says why it ended. `stock` is
    the command path of a key to the whole GPU; `salt` keys the commitment of what was published, `dataset_salt` its leaves: the fence of a
    key to the whole GPU works both out again. `chunks`, `length`, `proof_budget`: the grant's, worked out once, for every record is held to
    them.
    """

    grant: Grant
    channel: OpeningChains
    context: bytes
    stock: StockChannel | None = None
    received: int = 0
    accepted: int = 0
    total: int | None = None
    proof: bytearray = field(default_factory=bytearray)
    consumed: bool = False
    dead: str | None = None
    code: str = "copy-refused"
    commitment: str | None = None
    salt: bytes = field(default=b"", repr=False)
    dataset_salt: bytes = field(default=b"", repr=False)
    fetched: bool = False
    chunks: int = field(init=False)
    length: int = field(init=False)
    proof_budget: int = field(init=False)

    def __post_init__(self) -> None:
        self.chunks, self.length, self.proof_budget = self.grant.chunks, self.grant.length, self.grant.proof_budget

    def erase(self) -> None:
        """Forget every key."""
        self.channel.erase()
        if self.stock is not None:
            self.stock.erase()


class GrantTable:
    """One grant per epoch; a record finds its grant by the epoch in its header."""

    def __init__(self) -> None:
        self._by_epoch: dict[int, LiveGrant] = {}
        self._slots: dict[int, tuple[int, int]] = {}
        self._allotted = 0

    def allot(self, epoch: int) -> tuple[int, int]:
        """Copy engine and channel counter for the grant that an open epoch may get; a pair is never used twice."""
        self._slots[epoch] = slot = self.next_slot()
        self._allotted += 1
        return slot

    def next_slot(self) -> tuple[int, int]:
        """The pair that comes next."""
        return FIRST_ENGINE + self._allotted % ENGINES, self._allotted + 1

    def slot(self, epoch: int) -> tuple[int, int]:
        """What was allotted to an open epoch."""
        return self._slots[epoch]

    def install(self, grant: Grant, channel: OpeningChains, stock: StockChannel | None) -> LiveGrant:
        """Enter a grant that `check_grant` passed."""
        live = LiveGrant(grant, channel, copy_context(grant), stock)
        self._by_epoch[grant.epoch] = live
        return live

    def of_epoch(self, epoch: int) -> LiveGrant | None:
        """The grant of an epoch, alive or dead, until the epoch is killed."""
        return self._by_epoch.get(epoch)

    def require(self, port: str, epoch: int, region: int) -> LiveGrant:
        """The grant that a record on `port` claims.

        Raises:
            ProtocolViolation `no-grant`: there is none for this epoch, region and port.
        """
        live = self._by_epoch.get(epoch)
        if live is None or live.grant.region != region or live.grant.port != port:
            raise ProtocolViolation(
                f"no grant for epoch {epoch} and region {region} on port {port!r}", code="no-grant",
                remedy="Wait for a new offer; a killed epoch's key opens nothing any more.",
            )  # fmt: skip
        return live

    def end(self, epoch: int) -> LiveGrant | None:
        """Remove an epoch's grant and erase its key."""
        self._slots.pop(epoch, None)
        live = self._by_epoch.pop(epoch, None)
        if live is not None:
            live.erase()
        return live

    def all(self) -> list[LiveGrant]:
        """Every installed grant."""
        return list(self._by_epoch.values())

    def whole_gpu(self) -> bool:
        """Whether a key that commands all of the GPU is installed."""
        return any(live.stock is not None for live in self._by_epoch.values())

    def alive(self) -> list[int]:
        """Epochs that have a grant."""
        return list(self._by_epoch)


@dataclass(frozen=True)
class GrantScope:
    """What a grant must fit into: this session and its travel mode, this life, this program's records, this moment (seconds since 1970)."""

    session: str
    life: int
    record_bytes: int
    now: float
    mode: TravelMode = TravelMode.SCOPED


def check_grant(grant: Grant, scope: GrantScope, regions: RegionTable, table: GrantTable) -> None:
    """Refuse a grant that is not wholly inside what the GPU itself knows (laws L1, L2).

    Raises:
        NotFound, ProtocolViolation: one sentence naming the field. Nothing changed.
    """
    region, travel = regions.require_grantable(grant.region), TRAVEL[scope.mode]
    rules = (
        ("wrong-mode", grant.mode is scope.mode, f"is for travel mode {grant.mode}, the session's is {scope.mode}"),
        ("wrong-rights", grant.rights == travel.rights, f"gives rights {grant.rights!r}, its mode gives {travel.rights!r}"),
        ("wrong-shares", (grant.shares is not None) == travel.agreed, "names shares where its mode has none, or none where it has"),
        ("wrong-address", grant.address == (region.address if travel.told else None), "names another address"),
        ("wrong-session", grant.session == scope.session, "names another session"),
        ("wrong-life", grant.life == scope.life, f"is of life {grant.life}, the GPU is in life {scope.life}"),
        ("epoch-used", table.of_epoch(grant.epoch) is None, f"reuses epoch {grant.epoch}, which has its grant"),
        ("wrong-port", grant.port == holder_port(grant.holder), "names a port that is not its holder's"),
        ("wrong-record-size", grant.record_bytes == scope.record_bytes, "counts records of another size than the program's"),
        ("grant-too-large", grant.length <= region.length, f"carries {grant.length} bytes, the region has {region.length}"),
        ("over-budget", grant.length <= grant.byte_budget, "carries more bytes than its own budget"),
        ("proof-too-large", grant.proof_budget <= proof_limit(grant.cursor, grant.dataset_records),
         "allows a longer membership proof than any of its records can need"),
        ("grant-expired", scope.now < grant.expires_at, "has expired"),
    )  # fmt: skip
    for code, holds, fault in rules:
        if not holds:
            raise ProtocolViolation(f"the grant for region {grant.region} {fault}", code=code)
