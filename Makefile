# make run     the demo: a real agent at work under supervision, no account needed
# make test    all checks: ruff, mypy, import contract, pytest
# make soak    the fault tests with their full counts; writes bench/SOAK.md
# make bench   side-by-side measurements; prints tables
# make lock    resolve requirements*.lock anew (needs uv)

PYTHON ?= python3
BIN := .venv/bin
# Two workers per core: most tests wait for processes, not for the CPU.
WORKERS ?= 4

.PHONY: run test lint soak bench lock clean setup setup-dev

run: setup
	@$(BIN)/leadrope demo

setup: .venv/.run-stamp
setup-dev: .venv/.dev-stamp

.venv/.run-stamp: requirements.lock pyproject.toml
	@PYTHON=$(PYTHON) sh setup/venv.sh requirements.lock
	@touch $@

.venv/.dev-stamp: requirements-dev.lock requirements.lock pyproject.toml
	@PYTHON=$(PYTHON) sh setup/venv.sh requirements-dev.lock
	@touch .venv/.run-stamp $@

lint: setup-dev
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --config pyproject.toml

test: lint
	@$(BIN)/pytest -n $(WORKERS) --dist worksteal

soak: setup-dev
	@$(BIN)/python bench/soak.py

bench: setup-dev
	@$(BIN)/python bench/bench.py

lock:
	uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header requirements.in -o requirements.lock
	uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header -c requirements.lock requirements-dev.in -o requirements-dev.lock

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
