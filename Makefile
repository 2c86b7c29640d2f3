# Everything starts here. Each target makes .venv by itself; a second call finds it ready.
#
#   make demo    see the product at work          make bench   measure it against peers and limits
#   make test    run the tests                    make chaos   kill it for some minutes
#   make check   format, lint, types, imports     make docs    build the documents into site/

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check --constraint constraints.txt

# Where parts that are no Python packages go (see tools/fetch_parts.py); set it to share them between checkouts.
QUEUEYARD_PARTS ?= $(CURDIR)/.parts
export QUEUEYARD_PARTS
export PATH := $(QUEUEYARD_PARTS)/bin:$(CURDIR)/$(BIN):$(PATH)

TEST_PARTS := git jj valkey redis chromium bubblewrap
PROCESSES ?= auto
SOURCES := src tests tools benchmarks examples

.PHONY: help demo test check format bench chaos docs screenshot parts clean

help:
	@sed -n 's/^# \{0,1\}//p' $(firstword $(MAKEFILE_LIST)) | sed -n 2,6p

# Without jj its scene is skipped, and said to be.
demo: $(VENV)/.base
	@$(BIN)/queueyard doctor
	-@$(BIN)/python tools/fetch_parts.py jj
	@$(BIN)/queueyard demo

test: $(VENV)/.dev parts
	$(BIN)/python -m pytest -n $(PROCESSES) --dist loadgroup $(ARGS)

check: $(VENV)/.dev
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format: $(VENV)/.dev
	$(BIN)/ruff format $(SOURCES)
	$(BIN)/ruff check --fix $(SOURCES)

bench: $(VENV)/.dev parts
	@for file in $(filter-out benchmarks/measuring.py,$(wildcard benchmarks/*.py)); do echo "== $$file"; $(BIN)/python $$file || exit 1; done

chaos: $(VENV)/.dev parts
	$(BIN)/python -m pytest -m chaos --timeout 3600 tests/chaos $(ARGS)

docs: $(VENV)/.dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "site/index.html"

screenshot: $(VENV)/.dev parts
	@$(BIN)/python tools/screenshot.py

parts: $(VENV)/.dev
	@$(BIN)/python tools/fetch_parts.py $(TEST_PARTS)

clean:
	rm -rf $(VENV) .parts site build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(BIN)/python:
	@echo "making $(VENV)"
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Queueyard needs Python 3.11 or newer: make PYTHON=python3.12 ...")'
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.base: $(BIN)/python pyproject.toml constraints.txt
	@echo "installing queueyard"
	@$(PIP) --editable '.[panqueue,ops,pipeline,dashboard,embedded]'
	@touch $@

$(VENV)/.dev: $(VENV)/.base
	@echo "installing what tests and checks need"
	@$(PIP) --editable '.[dev,panqueue,ops,postgres,pipeline,dashboard,embedded,ml,mcp]'
	@touch $@
