# Everything one types here. `make` alone lists it.
#
# Set-up needs python3 (3.11 or later, with venv) and the package registry. All of it goes into .venv;
# every package is pinned by version and hash in requirements/*.txt.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# Two workers a core, for half of the minutes are waits for programs; tests of one file stay together where they share one.
WORKERS ?= $(shell echo $$((2 * $$(getconf _NPROCESSORS_ONLN))))
PYTEST := $(BIN)/pytest --numprocesses $(WORKERS) --dist loadgroup
UV     := $(BIN)/uv pip install --quiet --python $(BIN)/python

# Bytecode lies in .venv, also where the environment asks for none in the tree: without it each of the hundreds of
# programs that the tests start compiles Windrow anew, and each worker all tests.
export PYTHONPYCACHEPREFIX := $(CURDIR)/$(VENV)/pycache
unexport PYTHONDONTWRITEBYTECODE

# Stamps say which part of the set-up is done; they lie in .venv, so removing it starts afresh.
RUN := $(VENV)/.windrow-run
DEV := $(VENV)/.windrow-dev
SITE := $(VENV)/.windrow-site

.DEFAULT_GOAL := help
.PHONY: help wheel image demo test test-long mutants admission chaos check format lock docs docs-site setup bench chart stubs driver driver-pins clean

help:  ## list what one can type
	@grep -E '^[a-z-]+:.*  ##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*  ## (.*)/  make \1|\2/' | column -t -s '|' 2>/dev/null \
	  || grep -E '^[a-z-]+:.*  ##' $(MAKEFILE_LIST)

demo: $(RUN)  ## watch a cluster come up, lose machines and heal (ARGS="--keep" for more)
	@$(BIN)/windrow demo $(ARGS)

test: $(DEV)  ## run the tests, in minutes (ARGS="tests/unit -k quantity" for some)
	@$(PYTEST) -m "not long" $(ARGS)

test-long: $(DEV)  ## run the random walks and enumerations (WINDROW_SEEDS=20000 for a longer walk, ARGS="-m nightly" for the rest)
	@$(PYTEST) -m "long and not nightly" $(ARGS)

mutants: $(DEV)  ## change the lines that differ from HEAD~1, and see whether the tests notice (ARGS="--core" for a night)
	@$(BIN)/python -m tests.mutants $(ARGS)

admission: $(DEV)  ## compare the emulator's admission with Harvester's and KubeVirt's (ARGS="--group vm" to see differences)
	@$(BIN)/python -m tests.conformance.admission $(or $(ARGS),--whole)

chaos: $(DEV)  ## kill, stop and cut off whole programs, and check Harvester from outside (ARGS="--for 7200" for hours)
	@$(BIN)/python -m tests.chaos $(ARGS)

check: $(DEV)  ## format, lint, types, import contracts, lock files, reference
	@$(MAKE) --no-print-directory --keep-going $(CHECKS)

# All of them run, so that one look shows all that is wrong.
CHECKS := check-format check-lint check-types check-contracts check-locks check-stubs check-docs check-chart
CODE   := src tests scripts benchmarks setup.py
.PHONY: $(CHECKS)

check-format:
	$(BIN)/ruff format --check --quiet $(CODE)
check-lint:
	$(BIN)/ruff check --quiet $(CODE)
check-types:
	$(BIN)/mypy
check-contracts:
	$(BIN)/lint-imports --no-logo
check-locks:
	$(BIN)/python scripts/lock.py --check
check-stubs:
	$(BIN)/python scripts/stubs.py --check
check-docs:
	$(BIN)/python scripts/reference.py --check
check-chart:
	$(BIN)/python scripts/chart.py --check

format: $(DEV)  ## write the format, and what lint can repair by itself
	$(BIN)/ruff check --quiet --fix $(CODE)
	$(BIN)/ruff format --quiet $(CODE)

bench: $(DEV)  ## measure, and compare with the stated baselines
	@$(BIN)/python -m benchmarks $(ARGS)

chart: $(DEV)  ## pack the Helm charts, also into their K3s manifests (ARGS="--cluster-name NAME" prints one)
	@$(BIN)/python scripts/chart.py $(ARGS)

stubs: $(DEV)  ## write the messages of the Container Storage Interface from csi.proto
	@$(BIN)/python scripts/stubs.py

wheel: $(RUN)  ## build the wheel and the sdist in dist/, with the version of the git tag
	@$(BIN)/uv build --quiet --no-build-isolation --python $(BIN)/python --out-dir dist .
	@ls -t dist/windrow-* | head -2

image: $(RUN)  ## build the images of the manager, the cloud provider and the CSI driver in dist/images (ARGS="--refresh" for Debian's news)
	@$(BIN)/python scripts/image/build.py $(ARGS)

driver: $(RUN)  ## build the node driver as one file for Rancher, in dist/ (ARGS="--strict" for a release)
	@$(BIN)/python scripts/driver/build.py $(ARGS)

driver-pins: $(RUN)  ## pin the newest sources of that file that Debian serves (after a security release)
	@$(BIN)/python scripts/driver/build.py --pins

lock: $(DEV)  ## bring the lock files up to date with the inputs (ARGS="--upgrade" for newer versions)
	$(BIN)/python scripts/lock.py $(ARGS)

docs: $(DEV)  ## write the reference pages that are made from the code
	@$(BIN)/python scripts/reference.py

docs-site: $(SITE)  ## make the documentation a site, in dist/site; a link that leads nowhere is an error
	@NO_MKDOCS_2_WARNING=1 DISABLE_MKDOCS_2_WARNING=true $(BIN)/mkdocs --quiet build --strict $(ARGS)
	@echo "dist/site/index.html"

setup: $(DEV)  ## the set-up that the others do when they need it

$(SITE): $(RUN) requirements/docs.txt
	@$(UV) --require-hashes -r requirements/docs.txt
	@touch $@

clean:  ## remove the set-up and every cache
	rm -rf $(VENV) dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache src/*.egg-info
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

# pip brings uv and the builder, with their hashes; uv brings the rest.
$(BIN)/uv: requirements/setup.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Windrow needs Python 3.11 or later; $(PYTHON) is $$($(PYTHON) --version 2>&1)."; \
	  echo "Name another one: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@echo "Setting up $(VENV) …"
	@test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	  echo "$(PYTHON) cannot make a virtual environment; install its venv module (Debian: python3-venv)."; exit 1; }
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements/setup.txt
	@touch $@

$(RUN): $(BIN)/uv requirements/run.txt pyproject.toml
	@$(UV) --require-hashes -r requirements/run.txt
	@$(UV) --no-deps --no-build-isolation --editable .
	@touch $@

# The tests' bytecode, with pytest's assertions in it, is written here once, and not by each worker of the first run.
$(DEV): $(RUN) requirements/dev.txt
	@$(UV) --require-hashes -r requirements/dev.txt
	@$(BIN)/pytest --collect-only -qq >/dev/null 2>&1 || true
	@touch $@
