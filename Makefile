# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: demo mosquitto test test-all bench crash soak check format clean

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: pyproject.toml | $(BIN)/python
	@echo "Installing Vedette and both engines into $(VENV), once; this may take a minute ..." >&2
	@$(BIN)/python -m pip install --quiet --editable '.[demo]'
	@touch $@

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

demo: $(VENV)/.demo
	@$(BIN)/python tools/demo.py

# The broker of the tests; where it is missing and may not be installed, they skip and say what to install.
mosquitto:
	@PATH="$$PATH:/usr/sbin:/usr/local/sbin"; if command -v mosquitto >/dev/null; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ]; then as_root=; else as_root="sudo -n"; fi; \
	if command -v apt-get >/dev/null && { [ -z "$$as_root" ] || $$as_root true 2>/dev/null; }; then \
	  echo "Installing Mosquitto, the broker of the tests ..." >&2; \
	  { $$as_root apt-get install -y -qq --no-install-recommends mosquitto || \
	    { $$as_root apt-get update -qq && $$as_root apt-get install -y -qq --no-install-recommends mosquitto; }; \
	  } >/dev/null || true; \
	fi; \
	command -v mosquitto >/dev/null || \
	  echo "Mosquitto is missing: its tests will be skipped; install it with 'apt-get install mosquitto'" >&2

test: $(VENV)/.dev mosquitto
	$(BIN)/python -m pytest -n 2 tests

# The tests on every Python that is installed and supported; each gets a virtual environment of its own.
test-all:
	set -e; for version in 3.10 3.11 3.12 3.13; do \
	  python=; \
	  for candidate in python$$version "$$HOME"/.pyenv/versions/$$version.*/bin/python; do \
	    "$$candidate" -c '' 2>/dev/null && { python=$$candidate; break; }; \
	  done; \
	  [ -n "$$python" ] || { echo "python$$version: not installed, skipped"; continue; }; \
	  $(MAKE) --no-print-directory test PYTHON="$$python" VENV=.venv-$$version; \
	done

# Figures of the README; `make bench BENCH_OPTIONS=--assert` fails when a bar is missed.
bench: $(VENV)/.dev
	set -e; for name in path pipe_reader cameras footprint delta swap update_latency blocks telemetry serve escalate_latency guarantee budget detection cloud cloud_deadline frame_gate; do $(BIN)/python -m tests.bench.$$name $(BENCH_OPTIONS); done

# Mistakes made on purpose, which must be found; then power cuts, kills and failing disks at every durable step
# (about two minutes on 2 cores). Exit 1 on any broken invariant.
crash: $(VENV)/.dev
	$(BIN)/python -m tests.crash --self-check
	$(BIN)/python -m tests.crash

N ?= 1000
soak: $(VENV)/.dev
	$(BIN)/python -m tests.crash --soak $(N)
	VEDETTE_KILLS=20 $(BIN)/python -m pytest tests/system/test_updates.py -k killed

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
