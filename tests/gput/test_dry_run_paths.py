"""Where a dry run is sent, whatever an orchestrator calls its parties and sessions: what is signed there is of use for no act."""

from __future__ import annotations

import httpx2
import pytest

from gput.client import UNATTESTED, AsyncClient
from gput.commands.party_keys import _asked
from shared.crypto.signing import PartyKey
from shared.service.http import Peers

AT = "http://orchestrator.test"


class Says(httpx2.AsyncBaseTransport):
    """Gives the caller a name of its choice, and takes everything that it is asked beforehand."""

    def __init__(self, name: str, key: PartyKey) -> None:
        self.name, self.key, self.posted = name, key.fingerprint, list[bytes]()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if request.method == "GET":
            return httpx2.Response(200, json={"name": self.name, "role": "holder", "key": self.key})
        self.posted.append(request.url.raw_path)
        return httpx2.Response(200, json={"changes": True, "unjudged": []})


@pytest.mark.parametrize(
    "name", ["north", "../../sessions/s_mfrggzdfmztwq2lk/cancel?", "a/../../../parties", "..", "%2e%2e/x", "a#b"]
)
async def test_a_name_leads_to_no_other_path(name: str) -> None:
    key = PartyKey.generate()
    says = Says(name, key)
    async with AsyncClient(AT, key, trust=UNATTESTED, peers=Peers(transports={AT: says})) as client:
        await _asked(client, PartyKey.generate().public)
        await client.would("sessions", name, "cancel")
    assert len(says.posted) == 2
    for path in says.posted:
        assert path.startswith(b"/v1/dry-run/")
        assert path.count(b"/") <= 5
        assert b"?" not in path
