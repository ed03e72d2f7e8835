"""Flower's client: weights in, one round of training, weights out. Runs in Flower's own environment; knows no other framework."""

import common
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


@app.train()
def train(msg, context):
    model = common.fresh()
    model.load_state_dict(msg.content["arrays"].to_torch_state_dict())
    turn = int(msg.content["config"]["server-round"]) - 1
    common.train(model, int(context.node_config["partition-id"]), turn)
    content = {"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord({"num-examples": 1})}
    return Message(content=RecordDict(content), reply_to=msg)
