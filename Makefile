# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: demo test test-all check bench format clean

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[demo]'
	touch $@

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

demo: $(VENV)/.demo
	$(BIN)/python tools/demo.py

test: $(VENV)/.dev
	$(BIN)/python -m pytest tests

# Figures of the README; `make bench BENCH_OPTIONS=--assert` fails when a bar is missed.
bench: $(VENV)/.dev
	set -e; for name in path pipe_reader cameras footprint; do $(BIN)/python -m tests.bench.$$name $(BENCH_OPTIONS); done

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) build dist demo-out test-out
