"""The cost of a policy stays within the budget for any value of any field."""

import functools
import json
from typing import Any

import admitting
import cost_budget
import msgspec

from railwright.cluster import policies
from railwright.fabric.policy import model


def test_the_cost_of_a_policy_is_bounded_for_any_value_of_a_number():
    base = msgspec.json.decode(msgspec.json.encode(admitting.fabric().document))
    claims = {"deviceClass": "a", "acceleratorClass": "b"}
    base = cost_budget.add_value(base, ("fabrics", "f", "claims"), claims)
    fields = [field for field in cost_budget.list_fields(model.PolicyDocument) if field.kind == "number"]
    assert len(fields) > 10
    rows = [
        cost_budget.Row(
            f"{field.title}: {number!r:.20}", functools.partial(cost_budget.set_value, base, field.path, number)
        )
        for field in fields
        for number in (*cost_budget.NUMBERS, 10**30)
        if not isinstance(number, str)
    ]
    for row in rows:
        text = json.dumps(row.build())  # msgspec encodes no number beyond 64 bits
        cost = cost_budget.measure_cost(functools.partial(policies.read, text))
        assert cost.total < 1.0, f"{row.title}: {cost.describe()}"
        assert cost.peak < 32 << 20, f"{row.title}: {cost.describe()}"


POLICY: dict[str, Any] = {
    "apiVersion": "railwright.io/v1alpha1",
    "fabrics": {
        "f": {
            "transport": "roce",
            "rails": [{"name": "rail0", "network": "prod/lan2"}],
            "mounts": {"hostPaths": {"/s": "/s"}},
        }
    },
    "nodeShapes": [{"name": "n", "match": {"a": "b"}}],
}


def encode_policy(row):
    return json.dumps(row.build(), default=lambda raw: "[" * len(raw))


def test_the_longest_policy_is_read_within_a_second():
    """Reviews wait while a server reads a policy."""
    size = policies.MAX_CHARACTERS - 4096
    problems = []
    rows = cost_budget.list_objects(model.PolicyDocument, POLICY, size=cost_budget.Size(size))
    for row in cost_budget.sample_rows(rows, 16):
        text = encode_policy(row)
        cost = cost_budget.measure_cost(functools.partial(policies.read, text), stall_seconds=1.0, seconds=1.0)
        if cost.total > 1.0 or cost.peak > 64 << 20:
            problems.append(f"{row.title} ({len(text) >> 10} KiB): {cost.describe()}")
    assert not problems, "\n" + "\n".join(problems)
