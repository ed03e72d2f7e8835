"""FLARE's client: weights in, one round of training, weights out, until the server has no more. Runs in FLARE's own environment."""

import common
import nvflare.client as flare
import torch

flare.init()
holder = int(flare.get_site_name().rpartition("-")[2]) - 1  # proof-of-concept sites are numbered from 1
while flare.is_running():
    received = flare.receive()
    model = common.fresh()
    model.load_state_dict({name: torch.as_tensor(value) for name, value in received.params.items()})
    common.train(model, holder, int(received.current_round))
    flare.send(flare.FLModel(params={name: value.detach() for name, value in model.state_dict().items()}))
