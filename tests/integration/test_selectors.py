"""The recorded results of expressions, and those of random ones, are those of Kubernetes' own compiler."""

import json
import os
import subprocess
from collections.abc import Sequence
from typing import Any

import pytest
import random_selectors
import selecting
from plane import binaries

_LETTERS = {"yes": "Y", "no": "N", "fails": "F"}
_EXPRESSIONS = 2000


def ask(rows: Sequence[tuple[str, Sequence[dict[str, Any]]]]) -> list[dict[str, Any]]:
    """Return Kubernetes' answers about expressions, each with devices."""
    questions = "".join(json.dumps({"expression": text, "devices": devices}) + "\n" for text, devices in rows)
    program = binaries.get_evaluator().find()
    assert program is not None, "run: .venv/bin/python tests/integration/build.py"
    completed = subprocess.run([program], input=questions, capture_output=True, text=True, check=True, timeout=120)
    answers = [json.loads(line) for line in completed.stdout.splitlines()]
    for answer in answers:
        answer["letters"] = "".join(_LETTERS[result] for result in answer["results"] or ()) or selecting.INVALID
    return answers


def test_the_recorded_results_are_those_of_kubernetes():
    rows = selecting.read_rows()
    answers = ask([(row.expression, row.devices) for row in rows])
    if os.environ.get("RAILWRIGHT_RECORD"):
        selecting.write_results([answer["letters"] for answer in answers])
    different = [
        (row.expression, row.results, answer["letters"], answer.get("problem"))
        for row, answer in zip(rows, answers, strict=True)
        if row.results != answer["letters"]
    ]
    assert different == []


@pytest.mark.parametrize("seed", range(3))
def test_random_expressions_agree_or_are_unknown(seed):
    writer = random_selectors.Writer(seed)
    expressions = [*dict.fromkeys(writer.write() for _ in range(_EXPRESSIONS))]
    shared = selecting.read_devices()
    devices = [shared[name] for name in ("nic", "eth", "gpu", "vf")]
    known, different = 0, []
    for text, answer in zip(expressions, ask([(text, devices) for text in expressions]), strict=True):
        if answer["letters"] == selecting.INVALID:
            continue
        own = [selecting.LETTERS[selecting.evaluate(text, device).match] for device in devices]
        library = [selecting.LETTERS[selecting.evaluate_by_library(text, device).match] for device in devices]
        known += "?" not in own
        different += [
            (text, "".join(results), answer["letters"])
            for results in (own, library)
            if any(result not in ("?", theirs) for result, theirs in zip(results, answer["letters"], strict=True))
        ]
    assert different == []
    assert known > _EXPRESSIONS / 4
