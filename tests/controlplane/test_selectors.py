"""The recorded results of expressions are those of Kubernetes' own compiler, which is built for this."""

import json
import os
import subprocess

import selecting
from plane import binaries

_LETTERS = {"yes": "Y", "no": "N", "fails": "F"}


def test_the_recorded_results_are_those_of_kubernetes():
    rows = selecting.read_rows()
    questions = "".join(json.dumps({"expression": row.expression, "devices": row.devices}) + "\n" for row in rows)
    program = binaries.build_evaluator()
    completed = subprocess.run([program], input=questions, capture_output=True, text=True, check=True, timeout=120)
    answers = [json.loads(line) for line in completed.stdout.splitlines()]
    results = [
        "".join(_LETTERS[result] for result in answer["results"] or ()) or selecting.INVALID for answer in answers
    ]
    if os.environ.get("RAILWRIGHT_RECORD"):
        selecting.write_results(results)
    different = [
        (row.expression, row.results, result, answer.get("problem"))
        for row, result, answer in zip(rows, results, answers, strict=True)
        if row.results != result
    ]
    assert different == []
