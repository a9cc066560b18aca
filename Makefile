# Everything a newcomer needs is `make tour` and `make test`; `make` alone lists the rest.
PYTHON ?= python3.11
VENV   := .venv
STUDY  ?= tour
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)

.DEFAULT_GOAL := help
.PHONY: help setup study run tour ui check format test benchmark clean

help:  ## list the commands
	@grep -hE '^[a-z ]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## */\t/' | expand -t 14

setup: $(VENV)/.ready  ## make .venv with everything in it

$(VENV)/.ready: requirements.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	pip install --quiet --requirement requirements.lock
	pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

study: setup  ## make STUDY=<name of conf/study> the workspace's params.yaml
	python -m flows.compose $(STUDY)

run tour: setup  ## play the study in params.yaml (as cloned: the tour), and say where its report is
	python -m flows.pipeline

ui: setup  ## serve Prefect, a worker and MLflow on this machine until interrupted
	python -m flows.ui

check: setup  ## lint, types, layers, spelling
	ruff check .
	ruff format --check .
	mypy
	lint-imports
	codespell

format: setup  ## let ruff rewrite what it can
	ruff check --fix .
	ruff format .

test: setup check  ## all checks and tests
	pytest

benchmark: setup  ## what LocalFit, augmentation and each method cost beside the bare loops and FedAvg
	python -m benchmarks.local_fit
	python -m benchmarks.simclr
	python -m benchmarks.methods

clean:  ## remove what the stages made, and unfinished work; data in DVC's cache and MLflow's records stay
	rm -rf data models results report .fedcore dvc.lock
