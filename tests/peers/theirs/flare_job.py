"""Writes FLARE's job to a folder. Usage: python flare_job.py FOLDER fedavg|cyclic. Runs in FLARE's own environment."""

import sys
from pathlib import Path

import common
from nvflare.app_opt.pt.recipes.cyclic import CyclicRecipe
from nvflare.app_opt.pt.recipes.fedavg import FedAvgRecipe

folder, kind = sys.argv[1:]
recipe = {"fedavg": FedAvgRecipe, "cyclic": CyclicRecipe}[kind](
    name="peer",
    min_clients=common.TASK["holders"],
    num_rounds=common.TASK["rounds"],
    model=common.TinyGPT(),
    initial_ckpt=str(common.FOLDER / "start.pt"),
    train_script=str(Path(__file__).with_name("flare_client.py")),
)
recipe.export(folder)
