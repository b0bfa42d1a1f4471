# make run     the demo: a real agent at work under supervision, no account needed
# make test    all checks: ruff, mypy, import contract, pytest
# make test-newest   unit and integration tests on the newest Python that is found here
# make test-wheel    build the wheel, install it into an empty environment, run the demo from there; README's install lines
# make coverage   which lines the tests run, printed; TESTS=... for some of them
# make soak    the fault tests with their full counts; writes bench/SOAK.md
# make bench   side-by-side measurements; prints tables
# make docs    write the reference pages, and the lists of options and rules with static types, from the code
# make pictures   record README's pictures from real runs (needs chromium)
# make lock    resolve requirements*.lock anew (needs uv)

VENV ?= .venv
# The Python of the environment that is there; `make PYTHON=python3.13 ...` makes it again with another one.
PYTHON ?= $(if $(wildcard $(VENV)/bin/python),$(VENV)/bin/python,python3)
BIN := $(VENV)/bin
# Where it is set, every start of leadrope would compile its own source again: five times the time of most commands.
unexport PYTHONDONTWRITEBYTECODE
# Two workers per core: most tests wait for processes, not for the CPU.
WORKERS ?= 4
# RERUN=yes, as in CI: a test that fails is run once more, alone, and listed as unstable where it passes then.
PYTEST := $(BIN)/$(if $(RERUN),python setup/rerun_failed.py,pytest)

# An environment of another Python than the one asked for is made again, however new its stamps are.
ifneq ($(filter command environment,$(origin PYTHON)),)
MINOR := import sys; print(*sys.version_info[:2])
ifneq ($(shell $(PYTHON) -c '$(MINOR)' 2>&1),$(shell $(BIN)/python -c '$(MINOR)' 2>/dev/null))
STALE := FORCE
endif
endif

.PHONY: run test test-newest test-wheel lint coverage soak bench docs pictures lock clean setup setup-dev FORCE

run: setup
	@$(BIN)/leadrope demo

setup: $(VENV)/.run-stamp
setup-dev: $(VENV)/.dev-stamp

$(VENV)/.run-stamp: requirements.lock pyproject.toml $(STALE)
	@PYTHON=$(PYTHON) VENV=$(VENV) sh setup/venv.sh requirements.lock
	@touch $@

$(VENV)/.dev-stamp: requirements-dev.lock requirements.lock pyproject.toml $(STALE)
	@PYTHON=$(PYTHON) VENV=$(VENV) sh setup/venv.sh requirements-dev.lock
	@touch $(VENV)/.run-stamp $@

FORCE:

lint: setup-dev
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --config pyproject.toml

test: lint
	@$(PYTEST) -n $(WORKERS) --dist worksteal

test-newest: setup-dev
	@VENV=$(VENV) WORKERS=$(WORKERS) RERUN=$(RERUN) sh setup/test_newest.sh

test-wheel: setup-dev
	@$(BIN)/python setup/try_wheel.py
	@$(BIN)/python setup/try_install_lines.py

# Printed and no gate. Python processes that tests start count too, those in a sandbox do not.
coverage: setup-dev
	@rm -rf .coverage && mkdir .coverage
	@$(BIN)/coverage run -m pytest -n $(WORKERS) --dist worksteal $(TESTS); status=$$?; \
	$(BIN)/coverage combine -q && $(BIN)/coverage report; exit $$status

soak: setup-dev
	@$(BIN)/python bench/soak.py

bench: setup-dev
	@$(BIN)/python bench/bench.py

docs: setup-dev
	@$(BIN)/python tools/reference.py

pictures: setup-dev
	@$(BIN)/python tools/demo_recording.py
	@$(BIN)/python tools/page_picture.py

lock:
	uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header requirements.in -o requirements.lock
	uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header -c requirements.lock requirements-dev.in -o requirements-dev.lock

clean:
	rm -rf .venv .venv-* .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage
