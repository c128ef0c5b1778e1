#!/usr/bin/env bash
# Run the parts of `make test-slow` that are named, or all of them: about 20 minutes on two cores if the control plane is
# built. A part that fails does not stop the others; the last lines name each part's result.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
readonly BIN=.venv/bin ALL="corpora examples budgets integration faults fuzz interpreters oldest"

# Tests that read much data, and inputs that fuzzing has found.
corpora() { $BIN/pytest --numprocesses 2 --dist worksteal tests/slow --ignore tests/slow/budgets --ignore tests/slow/faults; }

# Property tests with many examples, and placement on many random clusters. The other unit tests are in `make test`.
examples() {
	HYPOTHESIS_PROFILE=explore $BIN/pytest -m "hypothesis or examples" --numprocesses 2 --dist worksteal \
		--override-ini timeout=1800 tests/unit
}

# CPU time of what a tenant, a scheduler or a policy may send.
budgets() { $BIN/pytest --numprocesses 2 --dist worksteal --override-ini timeout=1800 tests/slow/budgets; }

# Integration tests that take over 15 seconds. All of tests/e2e runs in `make test-e2e` only.
integration() {
	$BIN/python tests/integration/build.py &&
		$BIN/pytest -m slow --numprocesses 2 --dist loadfile tests/integration
}

# Tests that load the machine run alone; the others mostly wait.
faults() {
	local name load=() others=() status=0
	for name in availability resources storm upgrade; do
		load+=("tests/slow/faults/test_$name.py") others+=(--ignore "tests/slow/faults/test_$name.py")
	done
	$BIN/python tests/integration/build.py || return
	$BIN/pytest --numprocesses 3 --dist loadfile "${others[@]}" tests/slow/faults || status=1
	$BIN/pytest "${load[@]}" || status=1
	return $status
}

# Coverage-guided, four minutes.
fuzz() {
	$BIN/uv pip install --quiet --python $BIN/python --only-binary :all: --require-hashes -r requirements/fuzz.txt &&
		PYTHONPATH=.:tests/support $BIN/python tests/slow/fuzz/run.py
}

# Unit tests on the newest and the oldest of the machine's other Pythons, each in an environment of its own; service tests
# on the oldest alone.
interpreters() {
	local version python folders oldest status=0
	oldest=$(sh tests/support/interpreters.sh | sed '$!d; s/ .*//')
	while read -r version python; do
		[ "$($BIN/python -V)" = "$("$python" -V)" ] && continue
		folders=tests/unit
		[ "$version" = "$oldest" ] && folders+=" tests/service"
		echo "tests on Python $version ($python)"
		$BIN/uv venv --quiet --clear --python "$python" ".venv-$version" &&
			$BIN/uv pip install --quiet --python ".venv-$version/bin/python" --require-hashes -r requirements/dev.txt &&
			$BIN/uv pip install --quiet --python ".venv-$version/bin/python" --no-deps --no-build-isolation --editable . &&
			".venv-$version/bin/pytest" --quiet --numprocesses 3 --dist loadfile $folders || status=1
	done < <(sh tests/support/interpreters.sh | sed -n '2p; 3,$ { $p }')
	return $status
}

# What may differ between versions of Kubernetes and Volcano; then all of it that needs no claims, without their API.
oldest() {
	local everywhere="check gang scheduler_configuration"
	local more="admission chart claim_shapes claim_templates explain kube_gangs policy rbac seeds workloads"
	test_release oldest "$everywhere $more" && test_release oldest-without-claims "$everywhere"
}

test_release() {
	local name files=()
	for name in $2; do files+=("tests/integration/test_$name.py"); done
	local -x RAILWRIGHT_CONTROL_PLANE=$1
	$BIN/python tests/integration/build.py && $BIN/pytest --numprocesses 3 --dist loadfile "${files[@]}"
}

results='' code=0
for part in ${*:-$ALL}; do
	[[ " $ALL " == *" $part "* ]] || { echo "test-slow: no part $part; the parts are: $ALL" >&2; exit 2; }
	printf '\n== %s %s\n' "$(date +%T)" "$part"
	if "$part"; then result=passed; else result=FAILED code=1; fi
	results+="$(printf '%-13s %s, %s s' "$part" "$result" "$SECONDS")"$'\n'
	SECONDS=0
done
printf '\n== parts of test-slow\n%s' "$results"
exit $code
