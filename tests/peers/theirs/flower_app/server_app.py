"""Flower's server: FedAvg over all holders, the final weights to a file. Runs in Flower's own environment; knows no other framework."""

import os

import common
from flwr.app import ArrayRecord, ConfigRecord
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

app = ServerApp()


@app.main()
def main(grid, context):
    holders = common.TASK["holders"]
    strategy = FedAvg(fraction_train=1.0, fraction_evaluate=0.0, min_train_nodes=holders, min_available_nodes=holders)
    found = strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(common.fresh().state_dict()),
        train_config=ConfigRecord({}),
        num_rounds=common.TASK["rounds"],
    )
    common.save(found.arrays.to_torch_state_dict(), os.environ["PEERS_MODEL"])
