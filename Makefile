# Every target creates the environment that it needs. A new machine needs Python 3.11 and a package index.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Two processes share the tests; one thread each avoids contention within torch.
WORKERS ?= 2
# How long `make fuzz` runs.
FUZZ_SECONDS ?= 3600
STAMP := $(VENV)/.installed
# The site needs more packages than the tests.
DOCS_STAMP := $(VENV)/.installed-docs

.PHONY: help compare test test-all fuzz faults lint audit format tables docs dist bench clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/' | expand -t 16

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@

compare: $(STAMP)  ## compare fusion methods on the built-in digits and write a report
	$(BIN)/consilience compare digits --methods best-unimodal early concat late late-probs bayes-robust --seeds 8 \
		--jobs $(WORKERS) --out runs/digits

test: $(STAMP)  ## run the tests and doctests that are not slow: some minutes
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist worksteal -m 'not slow'

test-all: $(STAMP)  ## run every test and doctest
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist worksteal

fuzz: $(STAMP)  ## fuzz for FUZZ_SECONDS (an hour) in child processes; failing cases go to tests/fuzz/corpus
	OMP_NUM_THREADS=1 $(BIN)/python tests/fuzz/run.py --seconds $(FUZZ_SECONDS)

faults: $(STAMP)  ## kill comparisons a hundred times and continue them; memory over a thousand fits
	OMP_NUM_THREADS=1 $(BIN)/python tests/faults/kill_runs.py --kills 100
	OMP_NUM_THREADS=1 $(BIN)/python tests/faults/memory.py --fits 1000

lint: $(STAMP)  ## ruff, mypy and the order of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

audit: $(STAMP)  ## ruff's security rules, licences and known vulnerabilities of the installed packages
	$(BIN)/ruff check --select S .
	$(BIN)/python .ci/audit.py

format: $(STAMP)  ## format the code with ruff
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(DOCS_STAMP): $(STAMP)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[docs]'
	@touch $@

tables: $(STAMP)  ## generate what the documents take from code and stored results: tables, a section for each method
	$(BIN)/python docs/generate.py
	$(BIN)/python docs/results.py
	$(BIN)/python docs/robust_tables.py
	$(BIN)/python docs/bayes_tables.py
	$(BIN)/python docs/conformal_tables.py
	$(BIN)/python docs/defaults_tables.py
	$(BIN)/python docs/choose_tables.py
	$(BIN)/python docs/finetune_tables.py
	$(BIN)/python docs/watch_tables.py

docs: $(DOCS_STAMP)  ## build the site with its gallery into build/site; a warning, a failing script or a broken link ends it
	mkdir -p docs/live
	OMP_NUM_THREADS=1 $(BIN)/consilience demo --out docs/live/index.html --home ../index.html
	OMP_NUM_THREADS=1 $(BIN)/python -m sphinx -b html -W --keep-going docs build/site
	$(BIN)/python docs/_ext/check_links.py build/site

dist: $(STAMP)  ## wheel and sdist in dist/, installed into an empty environment and tried there
	rm -rf dist build/smoke
	$(BIN)/python -m pip install --quiet --constraint constraints.txt hatchling
	$(BIN)/python -m hatchling build
	$(PYTHON) -m venv build/smoke/env
	build/smoke/env/bin/python -m pip install --quiet --constraint constraints.txt torch
	build/smoke/env/bin/python -m pip install --quiet --constraint constraints.txt dist/*.whl
	mkdir -p build/smoke/work
	build/smoke/env/bin/python .ci/smoke.py build/smoke/work

bench: $(STAMP)  ## benchmarks, each printing a ratio measured in one run
	@for race in benchmarks/bench_*.py; do echo "== $$race"; $(BIN)/python $$race || exit 1; done

clean:  ## remove the environment and the caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build docs/api docs/gallery docs/_generated
