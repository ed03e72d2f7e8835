# Everything a reader of the README needs. `make help` explains itself.
SHELL := /bin/bash
.DEFAULT_GOAL := help

PYTHON ?= python3.11
VENV ?= .venv
BIN := $(VENV)/bin
# Where pip finds PyTorch. The default asks PyTorch's own index for the CPU build and falls back to pip's settings when that
# cannot be reached; set TORCH_INDEX_URL= (empty) to use pip's own settings only.
TORCH_INDEX_URL ?= https://download.pytorch.org/whl/cpu
TORCH := torch==2.13.0
STAMP := $(VENV)/.set-up
# One more than cores: tests wait for one another's services a third of their time.
WORKERS ?= $(shell n=$$(nproc 2>/dev/null || echo 2); echo $$(( n < 7 ? n + 1 : 8 )))

# Some images set it. Demo and tests start processes by the dozen, and without bytecode each compiles the whole program again.
unexport PYTHONDONTWRITEBYTECODE

PEERS ?= .peers
FLWR := flwr==1.41.0
NVFLARE := nvflare==2.9.0
PEER_STAMPS := $(PEERS)/flower/.set-up $(PEERS)/flare/.set-up

.PHONY: help setup demo check test quick test-full chaos smoke-production bench-peers spec lint types contracts docs clean

help: ## Show what can be made
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo "  Variables: PYTHON=$(PYTHON)  TORCH_INDEX_URL=$(TORCH_INDEX_URL)"

setup: $(STAMP) ## Create .venv and install everything (skipped when nothing changed)

$(STAMP): pyproject.toml Makefile
	@command -v $(PYTHON) >/dev/null || { echo "make: $(PYTHON) not found. Install Python 3.11 or newer, or say: make PYTHON=python3 $(MAKECMDGOALS)" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python .ci/install-torch "$(TORCH)" "$(TORCH_INDEX_URL)"
	$(BIN)/python -m pip install --quiet --editable '.[gpu,test]'
	@touch $@

demo: setup ## Train one model on three private corpora by sending the GPU round (about a minute)
	$(BIN)/gput demo

# What a change breaks first. Leaves out the services by themselves, the command line, attacks, restarts, real processes.
CHECKED := tests/architecture tests/crypto tests/docs tests/gpu tests/protocol tests/vectors tests/world/test_world_session.py

check: lint types contracts ## Lint, types, import contracts and a part of the tests (3 minutes on 2 cores; docs/contributing.md)
	$(BIN)/python -m pytest -m "not slow" -n $(WORKERS) $(CHECKED)

# mypy has one core to itself for a minute, and its answer is worth no waiting for: tests run beside it.
test: lint contracts ## Lint, types, import contracts and every quick test (under 12 minutes on 2 cores)
	@$(MAKE) --no-print-directory --jobs=2 types quick

quick: setup
	$(BIN)/python -m pytest -m "not slow" -n $(WORKERS) --durations=20

test-full: lint types contracts ## The same and the long tiers
	$(BIN)/python -m pytest -n $(WORKERS) --durations=20

chaos: setup ## Break a compose deployment again and again while it trains (needs Docker; SEED=, FOR=seconds)
	WHEELS="$${WHEELS:-$$(.ci/wheels)}" $(BIN)/python -m tests.chaos $(if $(SEED),--seed $(SEED)) $(if $(FOR),--seconds $(FOR))

smoke-production: setup ## Bring up deploy/compose, kill the orchestrator that leads, verify the receipts (needs Docker; minutes)
	WHEELS="$${WHEELS:-$$(.ci/wheels)}" $(BIN)/python -m tests.production

bench-peers: setup $(PEER_STAMPS) ## Flower, NVIDIA FLARE and ours at the same training (Linux; 3 GB, many minutes; ARGS=, see docs/performance.md)
	$(BIN)/python -m tests.peers --peers $(PEERS) $(ARGS)

# Each in an environment of its own: they disagree about common dependencies, with each other and with us.
$(PEERS)/flower/.set-up: PEER = $(FLWR)
$(PEERS)/flare/.set-up: PEER = $(NVFLARE)
$(PEER_STAMPS): Makefile
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python .ci/install-torch "$(TORCH)" "$(TORCH_INDEX_URL)"
	$(@D)/bin/python -m pip install --quiet numpy "$(PEER)"
	@touch $@

spec: setup ## Model-check the protocol with spin (needs Debian's spin and gcc; minutes)
	$(BIN)/python -m docs.spec.tables --check
	$(BIN)/python -m docs.spec.check

lint: setup ## Style and common mistakes
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup ## mypy --strict
	$(BIN)/mypy

contracts: setup ## Import rules of the architecture
	$(BIN)/lint-imports

docs: setup ## Regenerate the pages that are made from code
	$(BIN)/python -m docs.generate

clean: ## Remove the environment and caches (keeps runs/)
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
