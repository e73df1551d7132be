# `make demo` trains a private model, `make test` checks everything. Each sets up .venv the first time, and whenever
# pyproject.toml, constraints.txt or the kernel change; otherwise it starts at once. The demo takes what a user takes,
# everything else what a contributor needs.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PARTS := pyproject.toml constraints.txt CMakeLists.txt $(wildcard src/noisette/_native/cpp/*)
PLAIN := $(VENV)/.plain
READY := $(VENV)/.ready

# Tensors here are small, and tests run side by side: one thread each.
export OMP_NUM_THREADS ?= 1
# One process more than cores: some tests wait for processes that they have started.
MANY := -n 3 --dist worksteal

# Bytecode is kept also where the environment says not to: to compile torch takes every process as long as to import it.
unexport PYTHONDONTWRITEBYTECODE

# Data sets are looked for beside the repository unless NOISETTE_DATA says where they are.
ifndef NOISETTE_DATA
ifneq ($(wildcard ../shared/data),)
export NOISETTE_DATA := ../shared/data
endif
endif

.PHONY: demo test browser quick lint doctest slow research sanitize bench bench-page figures wheel docs clean

# a model for scikit-learn's digits at epsilon 3, with its guarantee and a plot, in runs/
demo: $(PLAIN)
	$(BIN)/noisette train digits

# lint, types, tests, and every example in docstrings and on the pages; mypy has one core, so the examples get the other
test: $(READY)
	$(MAKE) --jobs=2 --output-sync lint doctest
	$(BIN)/pytest -m "not slow and not research and not browser" $(MANY)

doctest: $(READY)
	$(BIN)/pytest --doctest-modules --doctest-glob="*.md" src README.md docs

# the pages of `noisette report` in the system's Chromium, without which it fails; pictures of them in build/browser
browser: $(READY)
	$(BIN)/pytest -m browser tests/app/browser

# within a minute: lint, types, and tests/quick.txt, which has the quickest tests of every promise
quick: lint
	$(BIN)/pytest -m "not slow and not research and not browser" $(MANY) @tests/quick.txt

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# statistical and kill tests at their full counts, after the tests of experiments/
slow: research
	$(BIN)/pytest -m slow

# how experiments/ computes and draws; what guards its committed results is in `make test`
research: $(READY)
	$(BIN)/pytest -m "research and not slow" $(MANY) experiments/tests

# the tests of the native kernel, with a kernel that stops at any wrong address or undefined arithmetic
sanitize: $(READY)
	cmake -S . -B build/sanitize -DNOISETTE_SANITIZE=ON -DPython_EXECUTABLE=$(abspath $(BIN))/python
	cmake --build build/sanitize
	LD_PRELOAD="$$($(CXX) -print-file-name=libasan.so) $$($(CXX) -print-file-name=libstdc++.so)" \
	ASAN_OPTIONS=detect_leaks=0 $(BIN)/python -m pytest -p tests.support.sanitized -m "not slow" tests/unit/_native

# how long a start, accounting, a step, and two processes take, beside plain SGD and Opacus; busy.py, which takes half an
# hour of a machine that is quiet otherwise, is run by itself
bench: $(READY)
	$(BIN)/python benchmarks/start.py
	$(BIN)/python benchmarks/account.py
	$(BIN)/python benchmarks/step.py
	$(BIN)/python benchmarks/distributed.py

# the tables of docs/performance.md, from what `make bench` has measured
bench-page: $(READY)
	$(BIN)/python benchmarks/page.py

# every figure of the paper: computes what is missing in experiments/results, draws, and writes docs/results.md; CIFAR-10
# at full length takes hours, and is gone on with by experiments/long.py alone
figures: $(READY)
	$(BIN)/python experiments/figures.py

# an sdist and a wheel in dist/, and the wheel tried in an empty environment: bare, then with two extras
wheel: $(READY)
	rm -rf dist
	$(BIN)/python -m build --outdir dist
	$(BIN)/python .ci/wheel.py

# the site in site/, from docs/ and the docstrings; a broken link is an error
docs: $(READY)
	$(BIN)/python .ci/site.py
	$(BIN)/mkdocs build --strict

clean:
	rm -rf $(VENV) build dist site .mypy_cache .pytest_cache .ruff_cache .hypothesis

# Bytecode is written where a module is first imported: most of what these packages bring never is.
INSTALL = $(BIN)/python -m pip install --quiet --no-compile -c constraints.txt -e

$(PLAIN): $(PARTS)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(INSTALL) ".[plot,sklearn]"
	touch $@

$(READY): $(PARTS)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(INSTALL) ".[dev]"
	touch $(PLAIN) $@
