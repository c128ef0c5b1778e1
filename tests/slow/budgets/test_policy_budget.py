"""The cost of a policy and of a snapshot stays within the budget, whatever it has in any field."""

import functools
import json
from typing import Any

import admitting
import cost_budget
import cpu_time
import msgspec
import pytest

from railwright.cluster import documents, policies, policy_process, snapshots
from railwright.fabric.policy import model


def test_the_cost_of_a_policy_does_not_grow_with_its_numbers():
    base = msgspec.json.decode(msgspec.json.encode(admitting.fabric().document))
    claims = {"deviceClass": "a", "accelerators": {"deviceClass": "b"}}
    base = cost_budget.add(base, ("fabrics", "f", "claims"), claims)
    fields = [field for field in cost_budget.list_fields(model.PolicyDocument) if field.kind == "number"]
    assert len(fields) > 10
    rows = [
        cost_budget.Row(f"{field.title}: {number!r:.20}", functools.partial(cost_budget.put, base, field.path, number))
        for field in fields
        for number in (*cost_budget.NUMBERS, 10**30)
        if not isinstance(number, str)
    ]
    for row in cost_budget.sample(rows, 8):
        text = json.dumps(row.build())  # msgspec encodes no number beyond 64 bits
        cost = cost_budget.measure(functools.partial(policies.read, text))
        assert cost.total < 1.0, f"{row.title}: {cost.describe()}"
        assert cost.peak < 32 << 20, f"{row.title}: {cost.describe()}"


POLICY: dict[str, Any] = {
    "apiVersion": "railwright.io/v1alpha1",
    "fabrics": {
        "f": {
            "transport": "roce",
            "rails": [{"name": "rail0", "network": "prod/lan2"}],
            "sidecars": [{"name": "s", "image": "i"}],
        }
    },
    "nodeShapes": [{"name": "n", "match": {"a": "b"}}],
}


def encode_policy(row):
    return json.dumps(row.build(), default=lambda raw: "[" * len(raw))


PARTS = 8  # of the policies, so that a test takes minutes on a busy machine too


@pytest.mark.parametrize("part", range(PARTS))
def test_the_longest_policy_is_read_within_the_limits_of_the_process_that_reads_it(part):
    """The short form has shorter policies, and less time and memory for them."""
    size = documents.MAX_BYTES - 4096 if cost_budget.IS_FULL else documents.MAX_BYTES // 16
    share = size / documents.MAX_BYTES
    problems = []
    rows = cost_budget.list_objects(model.PolicyDocument, POLICY, size=cost_budget.Size(size))
    for row in cost_budget.sample(rows, 150)[part::PARTS]:
        text, limit = encode_policy(row), POLICY_SECONDS * share
        cost = cost_budget.measure(functools.partial(policies.read, text), stall_seconds=limit, seconds=limit)
        if cost.total > limit or cost.peak > policy_process._MOST_MEMORY * share:
            problems.append(f"{row.title} ({len(text) >> 10} KiB): {cost.describe()}")
    assert not problems, "\n" + "\n".join(problems)


# CPU time; the process is killed after 120 s, which a busy node may need for them
POLICY_SECONDS = 5.0
MOST_OF_POLICY = cost_budget.Size(documents.MAX_BYTES - 4096, documents.MAX_POLICY_VALUES - 100, is_valid=True)


def list_full_policies():
    """Return the policies in which one or two lists or maps have the most values that are read."""
    rows = [
        row
        for list_policies in (cost_budget.list_objects, cost_budget.list_pairs)
        for row in list_policies(model.PolicyDocument, POLICY, size=MOST_OF_POLICY)
        if "entries" in row.title or list_policies is cost_budget.list_pairs
    ]
    return cost_budget.sample(rows, 100)


@pytest.mark.parametrize("part", range(PARTS))
def test_a_policy_with_the_most_values_is_read_within_the_budget(part):
    """Another process reads it: the time of that process is limited, and that of the server has the usual budget."""
    problems, accepted = [], 0
    for row in list_full_policies()[part::PARTS]:
        text, began = encode_policy(row), cpu_time.measure_children()
        results = []

        async def read(text=text, results=results):
            results.append(await policy_process.read(text, 300))

        cost = cost_budget.measure(read, memory=False)
        seconds = (cpu_time.measure_children() - began) / len(results)
        is_refused = isinstance(results[-1], policies.Rejected)
        accepted += not is_refused
        lacks_memory = is_refused and "of memory to parse" in results[-1].errors[0].message
        if seconds > POLICY_SECONDS or lacks_memory or not cost_budget.is_within(cost, len(text)):
            problems.append(f"{row.title} ({len(text) >> 10} KiB): {seconds:.1f} s; the server: {cost.describe()}")
    assert accepted or not cost_budget.IS_FULL
    assert not problems, "\n" + "\n".join(problems)


def test_a_snapshot_of_five_thousand_nodes_in_json_is_read_in_seconds():
    node = {
        "kind": "Node",
        "metadata": {"labels": {f"example.com/label-{i}": str(i) for i in range(30)}},
        "status": {"allocatable": {f"nvidia.com/mlx5_{i}": "1" for i in range(8)}},
    }
    items = [{**node, "metadata": {**node["metadata"], "name": f"n{i}"}} for i in range(5000)]
    text = json.dumps({"kind": "List", "items": items})
    with cpu_time.limit(5):  # measured 0.3 s
        assert len(snapshots.read(text)["Node"]) == 5000
