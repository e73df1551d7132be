# `make demo` shows the library at work, `make test` checks it. Both set up .venv the first time, and whenever
# pyproject.toml or constraints.txt change; otherwise they start at once.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# Data sets are looked for beside the repository unless NOISETTE_DATA says where they are.
ifndef NOISETTE_DATA
ifneq ($(wildcard ../shared/data),)
export NOISETTE_DATA := ../shared/data
endif
endif

.PHONY: demo test lint slow clean

demo: $(READY)
	$(BIN)/python -m noisette.report.demo

test: lint
	$(BIN)/pytest -m "not slow"
	$(BIN)/pytest --doctest-modules --doctest-glob="*.md" src README.md docs

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

slow: $(READY)
	$(BIN)/pytest -m slow

clean:
	rm -rf $(VENV) build dist runs .mypy_cache .pytest_cache .ruff_cache .hypothesis

$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[dev]"
	touch $@
