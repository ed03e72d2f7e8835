"""A holder is offered its own stop of each round and no other: at several of one round its records would take part once for each."""

from __future__ import annotations

import pytest

from data_holder.protocol.offer import Agreement, check_offer
from data_holder.protocol.state import SessionState
from shared.claims.training import TrainingOptions
from shared.claims.visit import CursorRange, Grant
from shared.errors import Refused
from shared.names import holder_port
from shared.protocol.stops import travel_order
from shared.wire.visit import OfferDocument
from tests.orchestrator.orchestrator_samples import manifest

HOLDERS, BATCH, SEED = 4, 4, 11


def refusal(order: str, holder: str, index: int, round_number: int) -> str:
    """Code of the first rule that an offer breaks which is right as far as its stop goes, and in a mode that nobody approved."""
    agreed = manifest(HOLDERS, visit_order=order, training=TrainingOptions(batch_size=BATCH, seed=SEED))
    count = agreed.steps_for(holder) * BATCH
    cursor = CursorRange(start=(round_number - 1) * count, count=count, order=agreed.record_order, seed=SEED)
    grant = Grant.model_construct(cursor=cursor, holder=holder, port=holder_port(holder), mode="another")
    document = OfferDocument.model_construct(manifest="d", index=index, round=round_number, grant=grant)
    agreement = Agreement(agreed, "d", holder, 8, 64, "00" * 32)
    with pytest.raises(Refused) as caught:
        check_offer(document, agreement, SessionState("s"), signing_key=b"", proof=[], at=0.0)
    return caught.value.code


@pytest.mark.parametrize("order", ["roster", "shuffled"])
def test_only_its_own_stop(order: str) -> None:
    agreed = manifest(HOLDERS, visit_order=order, training=TrainingOptions(batch_size=BATCH, seed=SEED))
    for number in range(1, agreed.rounds + 1):
        planned = travel_order(agreed, number)
        for place in range(HOLDERS):
            found = {holder: refusal(order, holder, (number - 1) * HOLDERS + place + 1, number) for holder in planned}
            assert found.pop(planned[place]) == "mode-not-approved"
            assert set(found.values()) == {"index-not-planned"}
