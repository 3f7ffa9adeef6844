# Every target works as the first command in a fresh clone: it makes .venv, installs the pinned
# packages and then Moldau itself as a user would get it (built and copied, not linked), so that
# tests see what is shipped. Stamp files under .venv keep all of that to what has changed.

PYTHON  ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV    := .venv
BIN     := $(VENV)/bin
PIP     := $(BIN)/python -m pip --disable-pip-version-check --quiet
SOURCES := $(shell find src -name __pycache__ -prune -o -print) pyproject.toml README.md LICENSE

.PHONY: help install test lint format docs demo bench torture clean
.DELETE_ON_ERROR:

help:
	@echo "make test    lint, types and all tests"
	@echo "make lint    ruff and mypy only"
	@echo "make format  let ruff rewrite what it can"
	@echo "make docs    write the generated tables of docs/ anew"
	@echo "make demo    a broker, a group that shares the work, and a take-over, live"
	@echo "make bench   the measurements of bench/, printed as a table"
	@echo "make torture kill a broker many times and check what it promised"
	@echo "make clean   remove .venv and caches"

install: $(VENV)/.package

test: lint
	$(BIN)/python -m pytest -n 2 $(PYTEST_ARGS)

lint: $(VENV)/.package $(VENV)/.spark
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: $(VENV)/.dependencies
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

docs: $(VENV)/.package
	$(BIN)/python docs/generate.py

demo: $(VENV)/.package
	@$(BIN)/moldau demo

bench: $(VENV)/.package
	@$(BIN)/moldau bench $(BENCH_ARGS)

torture: $(VENV)/.package
	@$(BIN)/python -m tests.torture $(TORTURE_ARGS)

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "Moldau needs Python 3.11 or newer; name one with: make PYTHON=/path/to/python3" >&2; exit 1; }
	@echo "Making $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

$(VENV)/.dependencies: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing the packages of constraints.txt (about half a minute, once)"
	@$(BIN)/python -c "import tomllib; p = tomllib.load(open('pyproject.toml', 'rb'))['project']; \
		print(*p['dependencies'], *p['optional-dependencies']['dev'], sep='\n')" > $(VENV)/requirements.txt
	@$(PIP) install -r $(VENV)/requirements.txt -c constraints.txt
	@touch $@

# Only tests and types need the pipeline's packages, which are large.
$(VENV)/.spark: $(VENV)/.dependencies
	@echo "Installing Spark for the tests (a minute, once)"
	@$(BIN)/python -c "import tomllib; p = tomllib.load(open('pyproject.toml', 'rb'))['project']; \
		print(*p['optional-dependencies']['spark'], sep='\n')" > $(VENV)/spark.txt
	@$(PIP) install -r $(VENV)/spark.txt -c constraints.txt
	@touch $@

$(VENV)/.package: $(SOURCES) $(VENV)/.dependencies
	@echo "Installing moldau into $(VENV)"
	@$(PIP) install --no-deps --no-build-isolation --force-reinstall .
	@touch $@
