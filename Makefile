# Every target works as the first command in a fresh clone: it makes .venv, installs the pinned
# packages and then Moldau itself as a user would get it (built and copied, not linked), so that
# tests see what is shipped. Stamp files under .venv keep all of that to what has changed.

PYTHON  ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV    := .venv
BIN     := $(VENV)/bin
PIP     := $(BIN)/python -m pip --disable-pip-version-check --quiet
PAGE    := $(shell find console -name node_modules -prune -o -type f -print) tools/console.py
# Three at a time even on two cores: tests wait for processes more than they compute.
WORKERS ?= 3
# Whoever reads bytes from outside. The slow tests try many more examples on these.
PARSERS := tests/wire tests/records tests/peer tests/arrow tests/security
SOURCES := $(shell find src examples \( -name __pycache__ -o -path src/moldau/console/page \) -prune -o -print) pyproject.toml README.md LICENSE

# Workers of the tests and the programs that they start read what one of them has compiled.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help install console test test-slow lint format docs demo bench bench-kafka conformance torture simulate fuzz release clean
.DELETE_ON_ERROR:

help:
	@echo "make test    lint, types and the quick tests"
	@echo "make test-slow   the slow tests: many kills, whole benches, long torture, many examples"
	@echo "make lint    ruff and mypy only"
	@echo "make format  let ruff rewrite what it can"
	@echo "make console build the page of the console (Node from the PATH or from PyPI, packages from npm)"
	@echo "make docs    regenerate the tables in docs/"
	@echo "make demo    live: a broker, a consumer group, and a Spark pipeline that checks its own results"
	@echo "make bench   measure a broker on this machine, printed as a table"
	@echo "make bench-kafka   the same load on Moldau and on Apache Kafka, into bench/RESULTS.md"
	@echo "make conformance   the same requests to Moldau and to Apache Kafka, every difference listed"
	@echo "make torture kill a broker many times and check what it promised; the same for a cluster"
	@echo "             with TORTURE_ARGS=cluster, and for transactions with TORTURE_ARGS=transactions"
	@echo "make simulate  whole clusters on virtual time with faults from a seed; SEEDS=N, MINUTES=M,"
	@echo "             JOBS=j processes, or SEED=n to see one again"
	@echo "make fuzz    the property tests with other and many more examples"
	@echo "make release a versioned sdist and wheel in dist/, built reproducibly and tested alone"
	@echo "make clean   remove .venv and caches"

install: $(VENV)/.package

console: $(VENV)/.console

test: lint
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --durations=20 -m "not slow" $(PYTEST_ARGS)

test-slow: $(VENV)/.package $(VENV)/.spark $(VENV)/.browser $(VENV)/.classes
	HYPOTHESIS_PROFILE=many $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "hypothesis and not slow" $(PARSERS)
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --durations=20 -m slow $(PYTEST_ARGS)

lint: $(VENV)/.package $(VENV)/.spark
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: $(VENV)/.dependencies
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

docs: $(VENV)/.package
	$(BIN)/python docs/generate.py

demo: $(VENV)/.package $(VENV)/.spark
	@$(BIN)/moldau demo $(DEMO_ARGS)

bench: $(VENV)/.package
	@$(BIN)/moldau bench $(BENCH_ARGS)

# Both fetch Apache Kafka with Maven, and end with status 75 and a sentence where they cannot.
bench-kafka: $(VENV)/.package $(VENV)/.spark $(VENV)/.plots
	@$(BIN)/python -m bench.kafka $(BENCH_ARGS)

conformance: $(VENV)/.package
	@$(BIN)/python -m conformance $(CONFORMANCE_ARGS)

# A cluster needs ZooKeeper, which comes with Spark.
torture: $(VENV)/.package $(if $(filter cluster transactions sink pipelines,$(TORTURE_ARGS)),$(VENV)/.spark)
	@$(BIN)/python -m tests.torture $(TORTURE_ARGS)

# ZooKeeper is simulated too: nothing else is needed.
simulate: $(VENV)/.package
	@$(BIN)/python -m tests.simulation $(if $(SEED),--seed $(SEED)) $(if $(SEEDS),--seeds $(SEEDS)) \
		$(if $(MINUTES),--minutes $(MINUTES)) $(if $(JOBS),--jobs $(JOBS)) $(SIMULATE_ARGS)

fuzz: $(VENV)/.package $(VENV)/.spark
	HYPOTHESIS_PROFILE=thorough $(BIN)/python -m pytest -n 3 --dist worksteal --timeout 1800 -m hypothesis $(PYTEST_ARGS)

release: $(VENV)/.dependencies
	@$(BIN)/python -m tools.release

clean:
	rm -rf $(VENV) console/node_modules src/moldau/console/page .cache build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis

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

# Only the demo, tests and types need the pipeline's packages, which are large.
$(VENV)/.spark: $(VENV)/.dependencies
	@echo "Installing Spark (a minute, once)"
	@$(BIN)/python -c "import tomllib; p = tomllib.load(open('pyproject.toml', 'rb'))['project']; \
		extras = p['optional-dependencies']; \
		print(*(e for e in extras['spark'] + extras['iceberg'] if not e.startswith('moldau')), sep='\n')" > $(VENV)/spark.txt
	@$(PIP) install -r $(VENV)/spark.txt -c constraints.txt
	@touch $@

# Spark starts at half the cost with it. The slow tests do so often enough for it to pay.
$(VENV)/.classes: $(VENV)/.spark | $(VENV)/.package
	@echo "Archiving the classes that Spark loads (half a minute, once)"
	@$(BIN)/python -m tests.spark.class_archive || true
	@touch $@

$(VENV)/.plots: $(VENV)/.dependencies
	@$(BIN)/python -c "import tomllib; p = tomllib.load(open('pyproject.toml', 'rb'))['project']; \
		print(*p['optional-dependencies']['bench'], sep='\n')" > $(VENV)/plots.txt
	@$(PIP) install -r $(VENV)/plots.txt -c constraints.txt
	@touch $@

# The library that drives a browser; the browser itself is the machine's.
$(VENV)/.browser: $(VENV)/.dependencies
	@$(BIN)/python -c "import tomllib; p = tomllib.load(open('pyproject.toml', 'rb'))['project']; \
		print(*p['optional-dependencies']['browser'], sep='\n')" > $(VENV)/browser.txt
	@$(PIP) install -r $(VENV)/browser.txt -c constraints.txt
	@touch $@

# Where npm cannot be reached, this says what is missing, and everything else goes on.
$(VENV)/.console: $(PAGE) | $(VENV)/.dependencies
	@$(BIN)/python -m tools.console --stamp $@

$(VENV)/.package: $(SOURCES) $(VENV)/.dependencies $(VENV)/.console
	@echo "Installing moldau into $(VENV)"
	@$(PIP) install --no-deps --no-build-isolation --force-reinstall .
	@touch $@
