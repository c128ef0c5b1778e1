"""Rules about claims that users wrote, by their examples in tests/data/lint/examples/claims.yaml."""

import msgspec
import pytest

from documentation import rules as pages
from railwright.fabric import views
from railwright.fabric.lint.rules import claims

RULES = {rule.code: rule for rule in claims.RULES}


@pytest.mark.parametrize("rule", claims.RULES, ids=lambda rule: rule.code)
def test_a_rule_reports_its_bad_example_with_its_place_and_not_its_good_one(rule):
    examples = pages.list_claim_examples(rule)
    violations = examples.bad.check(rule)
    assert [violation.message for violation in violations] == examples.bad.messages != []
    assert not examples.good.check(rule)
    for violation in violations:
        part = examples.bad.spec if examples.bad.devices is None else examples.bad.devices
        for step in violation.path:
            part = part[step]


def find_codes(spec, templates):
    devices_by_name = {name: claims.read_devices(devices) for name, devices in templates.items()}
    pod = claims.PodClaimContext("", msgspec.convert(spec, views.PodSpec), devices_by_name)
    return [finding.code for finding, _ in claims.check_pod(pod)]


@pytest.mark.parametrize(
    ("template", "templates", "reported"),
    [
        ("absent", {"present": {}}, True),
        ("absent", {}, False),  # the templates may be in the cluster
        ("railwright-roce-2x2-3f2a91c0de", {"present": {}}, False),  # railwright writes it
        ("present", {"present": {}}, False),
    ],
)
def test_a_template_is_missed_only_among_others_in_the_files(template, templates, reported):
    container = {"name": "c", "resources": {"claims": [{"name": "x"}]}}
    spec = {"containers": [container], "resourceClaims": [{"name": "x", "resourceClaimTemplateName": template}]}
    assert find_codes(spec, templates) == ["C11"] * reported


def test_a_claim_that_an_init_container_uses_is_used():
    user = {"name": "check", "resources": {"claims": [{"name": "x"}]}}
    entry = {"name": "x", "resourceClaimTemplateName": "gpus"}
    templates = {"gpus": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]}}
    spec = {"containers": [{"name": "c"}], "resourceClaims": [entry]}
    assert find_codes(spec, templates) == ["C10"]
    assert find_codes({**spec, "initContainers": [user]}, templates) == []


def find_claim_codes(selector, constraint, **kind):
    nic = {**kind, **({"selectors": [{"cel": {"expression": selector}}]} if selector else {})}
    accelerators = {"name": "a", "exactly": {"deviceClassName": "neuron.aws.com", "count": 8}}
    devices = {"requests": [accelerators, {"name": "nic", "exactly": nic}]}
    if constraint:
        devices["constraints"] = [{"requests": ["a", "nic"], "matchAttribute": constraint}]
    claim = claims.ClaimContext("a", claims.read_devices(devices))
    return [finding.code for finding, _ in claims.check(claim)]


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
def test_claims_of_published_templates_are_reported_only_where_they_are_wrong(selector, constraint, kind, codes):
    assert find_claim_codes(selector, constraint, **kind) == codes


def test_a_claim_of_one_pod_may_name_its_devices():
    devices = claims.read_devices(pages.list_claim_examples(RULES["C03"]).bad.devices)
    for is_template in (True, False):
        codes = {finding.code for finding, _ in claims.check(claims.ClaimContext("a", devices, is_template))}
        assert ("C03" in codes) == is_template
