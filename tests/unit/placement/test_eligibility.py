"""Eligibility of nodes by the fields of node and pod."""

import msgspec
import pytest
from placing import build_cluster, node

from railwright.fabric import node_views, views
from railwright.fabric.placement.nodes import eligibility

TAINT = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}


def eligible(spec: dict, **node_fields) -> bool:
    state = build_cluster([node("n", "a", labels={"zone": "z1", "size": "8"}, **node_fields)])
    return eligibility.is_eligible(state.nodes["n"], msgspec.convert(spec, views.PodSpec))


def require(key: str, operator: str, *values: str) -> dict:
    expression = {"key": key, "operator": operator, "values": list(values)}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        (None, False),
        ({"key": "gpu", "operator": "Exists"}, True),
        ({"operator": "Exists"}, True),
        ({"key": "gpu", "value": "yes"}, True),
        ({"key": "gpu", "value": "no"}, False),
        ({"key": "gpu", "operator": "Exists", "effect": "NoExecute"}, False),
    ],
)
def test_a_taint_repels_unless_tolerated(toleration, expected):
    spec = {"tolerations": [toleration]} if toleration else {}
    assert eligible(spec, taints=[TAINT]) is expected


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"nodeSelector": {"zone": "z1"}}, True),
        ({"nodeSelector": {"zone": "z2"}}, False),
        (require("zone", "In", "z1", "z3"), True),
        (require("zone", "In", "z2"), False),
        (require("zone", "NotIn", "z2"), True),
        (require("other", "NotIn", "z2"), True),
        (require("zone", "Exists"), True),
        (require("zone", "DoesNotExist"), False),
        (require("size", "Gt", "7"), True),
        (require("size", "Lt", "8"), False),
        (require("zone", "Gt", "7"), False),
        (require("zone", "Like", "z*"), False),
        ({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}}}, False),
    ],
)
def test_selectors_and_required_affinity_decide(spec, expected):
    assert eligible(spec) is expected


def test_a_cordoned_node_is_not_eligible():
    assert not eligible({}, unschedulable=True)


def test_a_node_that_is_not_ready_is_not_eligible():
    tree = {"metadata": {"name": "n"}, "status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}
    state = build_cluster([msgspec.convert(tree, node_views.Node)])
    assert not eligibility.is_eligible(state.nodes["n"], views.PodSpec())
