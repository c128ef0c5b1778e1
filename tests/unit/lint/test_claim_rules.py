"""Rules about claims that users wrote: their own examples, and templates that projects have published."""

import pathlib

import pytest
import yaml

from railwright.fabric.lint import claim_engine, claim_types, pod_claim_types

PUBLISHED = yaml.safe_load((pathlib.Path(__file__).parents[2] / "data" / "claims" / "published.yaml").read_text())
# rules that the published templates violate, by name and shape; C08 is an info about every GPU
EXPECTED = {
    ("gpu-efa-aligned", "eks-p4d"): {"C05", "C08"},
    ("gpu-efa-unaligned", "eks-p4d"): {"C05", "C08"},
    ("1-gpu with all its EFA devices", "eks-p5"): {"C08"},
    ("gpu-efa-aligned", "eks-p5"): {"C05", "C08"},
    ("aligned-resource-claim", "gke-a3-ultra"): {"C05", "C08"},
    ("2-gpu-nic-aligned", "gke-a3-ultra"): {"C01", "C02", "C05", "C08"},
    ("2-gpu-nic-aligned, without its selector on the index", "gke-a3-ultra"): {"C01", "C02", "C05", "C08"},
    ("2-gpu-nic-aligned, without its selector on the index", "h100-8x8"): {"C01", "C02", "C05", "C08"},
    ("1nic-aligned", "aks-gb300"): {"C02", "C03", "C08"},
    ("2nic-aligned", "aks-gb300"): {"C02", "C03", "C05", "C08"},
    ("1nic-aligned", "oke-gb200"): {"C02", "C03", "C04", "C08"},
    ("2nic-aligned", "oke-gb200"): {"C02", "C03", "C04", "C08"},
}
RULES = claim_engine.list_rules()
CLAIM_RULES = [rule for rule in RULES if isinstance(rule, claim_types.ClaimRule)]
POD_RULES = [rule for rule in RULES if isinstance(rule, pod_claim_types.PodClaimRule)]


def find_codes(devices):
    ctx = claim_types.ClaimContext("ResourceClaimTemplate prod/rdma", claim_types.read_devices(devices))
    return {finding.code for finding, _ in claim_engine.check(ctx)}


@pytest.mark.parametrize("rule", CLAIM_RULES, ids=lambda rule: rule.code)
def test_a_rule_reports_its_bad_example_and_not_its_good_one(rule):
    assert rule.code in find_codes(rule.bad)
    assert rule.code not in find_codes(rule.good)


def test_codes_are_numbered_and_names_unique():
    assert [rule.code for rule in RULES] == [f"C{number:02}" for number in range(1, 13)]
    assert len({rule.name for rule in RULES}) == len(RULES)


@pytest.mark.parametrize("row", PUBLISHED, ids=lambda row: f"{row['name']} {row['shape']}")
def test_published_templates_violate_the_rules_of_their_traps(row):
    assert find_codes(row["devices"]) == EXPECTED[row["name"], row["shape"]]


@pytest.mark.parametrize("rule", POD_RULES, ids=lambda rule: rule.code)
def test_a_rule_about_pods_reports_its_bad_example_with_its_place_and_not_its_good_one(rule):
    findings = claim_engine.check_pod(rule.bad.build_context())
    assert [finding.code for finding, _ in findings] == [rule.code]
    assert not claim_engine.check_pod(rule.good.build_context())
    for _, path in findings:
        part = rule.bad.spec
        for step in path:
            part = part[step]


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
    findings = claim_engine.check_pod(pod_claim_types.PodClaimExample(spec, templates).build_context())
    assert [finding.code for finding, _ in findings] == ["C11"] * reported


def test_a_claim_that_an_init_container_uses_is_used():
    user = {"name": "check", "resources": {"claims": [{"name": "x"}]}}
    spec = {"containers": [{"name": "c"}], "initContainers": [user], "resourceClaims": [{"name": "x"}]}
    assert not claim_engine.check_pod(pod_claim_types.PodClaimExample(spec).build_context())


def test_every_violation_names_a_part_of_the_claim():
    for rule in CLAIM_RULES:
        ctx = claim_types.ClaimContext("", claim_types.read_devices(rule.bad))
        for violation in rule.check(ctx):
            part = rule.bad
            for step in violation.path:
                part = part[step]


def test_a_claim_of_one_pod_may_name_its_devices():
    devices = next(row["devices"] for row in PUBLISHED if row["name"] == "1nic-aligned")
    ctx = claim_types.ClaimContext("ResourceClaim a/b", claim_types.read_devices(devices), is_template=False)
    assert "C03" not in {finding.code for finding, _ in claim_engine.check(ctx)}
