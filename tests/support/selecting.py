"""Reads expressions of published drivers and Kubernetes' tests, with the results of Kubernetes' own compiler.

`tests/integration/test_selectors.py` compares these with the compiler; RAILWRIGHT_RECORD=1 records them again.
"""

import json
import pathlib
from typing import Any, NamedTuple

import msgspec

from railwright.cluster import expression_process
from railwright.fabric.claims import cel_programs, evaluations, inventory, objects, slices
from railwright.fabric.claims.comparisons import Match

FILE = pathlib.Path(__file__).resolve().parents[1] / "data" / "claims" / "selectors.json"
LETTERS = {Match.YES: "Y", Match.NO: "N", Match.FAILS: "F", Match.UNKNOWN: "?"}
INVALID = "invalid"  # the API server does not accept the expression


class Row(NamedTuple):
    """An expression, its source, and Kubernetes' result for each device: Y, N or F(ails); or INVALID."""

    source: str
    expression: str
    devices: list[dict[str, Any]]
    results: str


def read_rows() -> list[Row]:
    """Return all rows of the file."""
    tree = json.loads(FILE.read_text())
    shared = list(tree["devices"].values())
    return [
        Row(row["source"], row["expression"], [row["device"]] if "device" in row else shared, row["results"])
        for row in tree["rows"]
    ]


def read_devices() -> dict[str, dict[str, Any]]:
    """Return the devices of the file by name."""
    devices: dict[str, dict[str, Any]] = json.loads(FILE.read_text())["devices"]
    return devices


def write_results(results: list[str]) -> None:
    """Write the file with other results."""
    tree = json.loads(FILE.read_text())
    for row, result in zip(tree["rows"], results, strict=True):
        row["results"] = result
    devices = ",\n".join(f" {json.dumps(name)}: {json.dumps(device)}" for name, device in tree["devices"].items())
    rows = ",\n".join(f" {json.dumps(row)}" for row in tree["rows"])
    FILE.write_text(f'{{"devices": {{\n{devices}\n}},\n"rows": [\n{rows}\n]}}\n')


def offer(tree: dict[str, Any]) -> slices.OfferedDevice:
    """Return a device with `driver`, `attributes` and `capacity` as in a ResourceSlice."""
    device = msgspec.convert({"name": "device", **tree}, objects.Device)
    return slices.OfferedDevice(slices.DeviceId(tree.get("driver", ""), "pool", "device"), "node", device)


def evaluate(expression: str, tree: dict[str, Any]) -> evaluations.Result:
    """Return the result that a server has for an expression and a device, once its question is answered."""
    results, device = evaluations.Evaluations(), offer(tree)
    results.evaluate(expression, device)
    answer_here(results)
    return results.evaluate(expression, device)


def evaluate_by_library(expression: str, tree: dict[str, Any]) -> evaluations.Result:
    """Return the result of CEL's library alone."""
    offered = offer(tree)
    return cel_programs.evaluate(expression, offered.device, offered.id.driver)


def answer_here(results: evaluations.Evaluations) -> None:
    """Answer all questions in this process."""
    results.answer(
        {
            question.number: cel_programs.evaluate(question.expression, question.device, question.driver)
            for question in results.list_questions()
        }
    )


def settle(known: inventory.Inventory) -> None:
    """Answer all questions of an inventory in another process, as a command does."""
    for node in known.offered.ids_by_node:
        known.count_devices(node)
    known.answer(expression_process.answer_all(known.names.evaluations.list_questions()))
