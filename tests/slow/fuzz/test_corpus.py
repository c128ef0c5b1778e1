"""A short run without a fuzzer: every stored input, then mutations of them that are the same in each run."""

import json

import pytest
from fuzzing import catalogue, mutation

TARGETS = catalogue.load_targets()


@pytest.mark.parametrize("name", TARGETS)
def test_stored_fuzz_inputs_cause_no_failure(name):
    inputs = catalogue.read_corpus(name)
    assert inputs
    for data in inputs:
        catalogue.run_input(TARGETS[name], data)


@pytest.mark.parametrize("name", TARGETS)
def test_mutated_fuzz_inputs_cause_no_failure(name):
    target = TARGETS[name]
    for data in mutation.generate_inputs(catalogue.read_corpus(name), target.TOKENS, seed=1, count=target.EXECUTIONS):
        try:
            catalogue.run_input(target, data)
        except Exception as error:
            path = catalogue.store_input(name, data)
            line = json.dumps(data.decode("latin-1"))
            raise AssertionError(
                f"{path} breaks {name}; mend it and add this line to {name} in {catalogue.CORPUS}: {line}"
            ) from error


def test_the_stored_fuzz_inputs_are_below_300_kb():
    assert catalogue.CORPUS.stat().st_size < 300_000
