"""Rules about claims that users wrote, by their examples in tests/data/lint/examples/claims.yaml."""

import msgspec
import pytest

from documentation import rules as pages
from railwright.fabric.claims import objects
from railwright.fabric.lint.rules import claims


def check(rule, example):
    return list(rule.check(claims.ClaimContext(msgspec.convert(example["devices"], objects.DeviceClaim))))


@pytest.mark.parametrize("rule", claims.RULES, ids=lambda rule: rule.code)
def test_a_claim_rule_reports_its_bad_example_with_the_path_and_not_its_good_example(rule):
    examples = pages.read_examples()[rule.code]
    (bad,), (good,) = examples["bad"], examples["good"]
    violations = check(rule, bad)
    assert [violation.message for violation in violations] == bad["messages"] != []
    assert not check(rule, good)
    for violation in violations:
        part = bad["devices"]
        for step in violation.path:
            part = part[step]


def find_claim_codes(selector, constraint, **kind):
    nic = {**kind, **({"selectors": [{"cel": {"expression": selector}}]} if selector else {})}
    accelerators = {"name": "a", "exactly": {"deviceClassName": "neuron.aws.com", "count": 8}}
    devices = {"requests": [accelerators, {"name": "nic", "exactly": nic}]}
    if constraint:
        devices["constraints"] = [{"requests": ["a", "nic"], "matchAttribute": constraint}]
    claim = claims.ClaimContext(msgspec.convert(devices, objects.DeviceClaim))
    return [finding.code for finding, _ in claims.check_claim(claim)]


@pytest.mark.parametrize(
    ("selector", "constraint", "kind", "codes"),
    [
        # GKE's managed DRANET: all NICs of the node, and a part of them
        ("", "", {"deviceClassName": "mrdma.google.com", "count": 8}, []),
        ("", "", {"deviceClassName": "mrdma.google.com", "count": 2}, ["C05"]),
        # AWS: every device of EFA reaches every other; a device group of Neuron is meant to be shared
        ("", "resource.aws.com/devicegroup8_id", {"deviceClassName": "efa.networking.k8s.aws", "count": 8}, []),
        ("", "resource.kubernetes.io/pcieRoot", {"deviceClassName": "efa.networking.k8s.aws", "count": 8}, ["C01"]),
        # dranet: each device has the attribute rdma, but not numaNode; this one names the group that each pod gets
        ('device.attributes["dra.net"].rdma', "", {"deviceClassName": "dranet"}, ["C05"]),
        ('device.attributes["dra.net"].numaNode == 1', "", {"deviceClassName": "dranet"}, ["C02", "C03"]),
    ],
)
def test_claims_of_published_templates_are_reported_only_if_they_are_wrong(selector, constraint, kind, codes):
    assert find_claim_codes(selector, constraint, **kind) == codes


@pytest.mark.parametrize(
    ("expression", "unguarded"),
    [
        ('device.attributes["dra.net"].rdma == true', ("dra.net/rdma",)),
        ('device.attributes["dra.net"]["rdmaDevice"] == "mlx5_0"', ("dra.net/rdmaDevice",)),
        ('has(device.attributes["dra.net"].rdma) && device.attributes["dra.net"].rdma', ()),
        ("has(device.attributes['dra.net'].rdma) && device.attributes[\"dra.net\"]['rdma']", ()),
        ('"rdma" in device.attributes["dra.net"] && device.attributes["dra.net"].rdma', ()),
        ('device.attributes["dra.net"].?rdma.orValue(false)', ()),
        ('device.driver == "dra.net"', ()),
    ],
)
def test_attributes_read_without_has_or_in_are_listed_as_unguarded(expression, unguarded):
    assert claims.list_unguarded_attributes(expression) == unguarded
