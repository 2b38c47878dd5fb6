# tiltframe: `make help` lists what there is. Each target sets up its own virtual environment when there is none.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
JOBS ?= 2

.DEFAULT_GOAL := help
.PHONY: help demo test fast fuzz lint types bench java clean

help: ## List the targets
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 10

demo: java $(READY) ## Roll up a year of real flights through Spark, and ask at two levels
	@$(BIN)/tiltframe demo

test: java $(READY) ## Run every test, in two processes (half an hour on two cores; JOBS=1 for one)
	@$(BIN)/python -m pytest -n $(JOBS) --dist loadfile

fast: $(READY) ## Run the tests that need no Spark and no patience (under a minute)
	@$(BIN)/python -m pytest -m "not spark and not slow" -x tests docs aggr windows tiltframe

fuzz: $(READY) ## Run damaged states, messages and stores with checked indices (FUZZ=100 for a hundred times as many)
	@NUMBA_BOUNDSCHECK=1 $(BIN)/python -m pytest tests/test_fuzz.py tests/test_buckets.py tests/test_groups.py \
	  tests/test_store_fuzz.py tests/test_store_damage.py

lint: $(READY) ## Check style and format
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .

types: $(READY) ## Check types, strictly
	@$(BIN)/mypy

bench: java $(VENV)/.bench ## Measure beside peers, on one core and on Spark (some ten minutes; QUICK=1 for two)
	@$(BIN)/python -m benchmarks $(if $(QUICK),--quick)

$(VENV)/.bench: $(READY)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[bench]'
	@touch $@

clean: ## Remove the environment and what the targets made
	rm -rf $(VENV) demo-out bench-quick build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis

java:
	@java -version >/dev/null 2>&1 || { \
	  echo "Spark needs Java 17 or newer, and there is none: install it, say openjdk-17-jre-headless." >&2; exit 1; }

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "tiltframe needs Python 3.11 or newer: install it, and name it, say make PYTHON=python3.11." >&2; exit 1; }
	@echo "setting up $(VENV) …"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $(READY)
