# Every target creates the environment it needs: `make test` works on a fresh machine with Python 3.11 and a package index.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Two cores share the suite; one thread each keeps torch from fighting itself.
WORKERS ?= 2
STAMP := $(VENV)/.installed

.PHONY: help compare test test-fast lint format types imports bench clean

help:  ## what can be made
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/' | expand -t 16

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@

compare: $(STAMP)  ## which fusion method is best on the built-in digits: trains, corrupts, compares, writes a report
	$(BIN)/consilience compare digits --methods best-unimodal early concat late late-probs bayes-robust --seeds 8 \
		--jobs $(WORKERS) --out runs/digits

test: $(STAMP)  ## every test, doctests included
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist worksteal

test-fast: $(STAMP)  ## the tests that take a moment
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist worksteal -m 'not slow'

lint: $(STAMP)  ## ruff, mypy and the order of the rooms
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(STAMP)  ## put the code in the house's shape
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP)  ## speed races, each printing a ratio measured in one run
	@for race in benchmarks/bench_*.py; do echo "== $$race"; $(BIN)/python $$race || exit 1; done

clean:  ## remove the environment and the caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
