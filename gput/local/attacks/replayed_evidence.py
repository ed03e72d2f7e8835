"""HOSTILE CODE (attack tour), V16: genuine evidence of a moment ago, shown again for a fresh question. Knows no service's inside."""

from __future__ import annotations

import re

from gput.local.attacks.attack import EVERY, Attack
from gput.local.attacks.relay import Answer, Call, Deliver
from gput.local.attacks.result import Fact, Result, Said
from gput.local.attacks.stage import Stage

WHO = "north"


class Replayer:
    """Keeps the orchestrator's first answer for itself, and gives it to every later question of this holder."""

    def __init__(self) -> None:
        self.recorded: Answer | None = None
        self.replayed = 0

    async def hook(self, call: Call, deliver: Deliver) -> Answer:
        """A question for evidence opens a channel: POST …/channels."""
        if call.method != "POST" or not call.path.endswith("/channels"):
            return await deliver(call)
        if self.recorded is None:
            answer = await deliver(call)
            if answer.status >= 400:
                return answer
            self.recorded = answer
            return Answer(503, (), b"")
        self.replayed += 1
        return self.recorded


async def run(stage: Stage) -> Result:
    """A relay between one holder and the orchestrator."""
    replayer = Replayer()
    url = await stage.relay("orchestrator", replayer.hook)
    stage.installation.change("orchestrator", public_url=url)
    stage.installation.change(f"holder-{WHO}", orchestrator_url=url)
    await stage.start()
    await stage.until(lambda view: view["phase"] == "RUNNING")
    told = await stage.waiting(WHO, "not trusted")
    found = re.search(r"\(([a-z-]+): (.*)\)", told)
    code, message = found.groups() if found else ("not named", told)
    written = (await stage.operator(WHO, "links"))["dataset_bytes_to_gpu"]
    view = await stage.client.session(stage.session)
    return Result(
        f"the orchestrator's quote and the GPU's report, recorded once and shown again {replayer.replayed} time(s); all signatures true",
        "STOPPED",
        (Said(f"data holder {WHO}, verifying the orchestrator", code, message),),
        (
            Fact(f"replayed to {WHO}, which asks with a fresh nonce each time", replayer.replayed > 0),
            Fact(f"{WHO}'s operator is told: {told}", code == "channel-nonce"),
            Fact(
                f"{WHO} wrote {written} bytes of records: no channel, no visit",
                written == 0 and view["visits_closed"] == 0,
            ),
        ),
        "the same: nonces are in the exact bytes that the quote's report_data covers",
    )


ATTACK = Attack(
    "replayed-evidence", ("V16",), EVERY, "platform on the link between a holder and the orchestrator",
    "genuine evidence, recorded, is shown again for a fresh question",
    "V16: nonce, freshness", run, rounds=1,
)  # fmt: skip
