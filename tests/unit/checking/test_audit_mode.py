"""`check` of a fabric in audit mode: the changes that existing pods would get."""

import broken_installations
import installations
import pytest
import yaml

from railwright.cli.checking import check_rows
from railwright.fabric import names


def build(*pods: dict, mode: str = "audit", fabric_mode: str | None = None) -> dict:
    trees = installations.healthy()
    (config,) = trees["policy"]
    document = yaml.safe_load(config["data"]["policy.yaml"])
    document["mode"] = mode
    for spec in document["fabrics"].values():
        spec["mode"] = fabric_mode
    config["data"]["policy.yaml"] = yaml.safe_dump(document)
    trees["pods"] = list(pods)
    return trees


def assess(trees: dict) -> dict[str, list[check_rows.Result]]:
    results = broken_installations.assess_trees(trees)
    return {anchor: [row for row in results if row.check == anchor] for anchor in ("audit-mode", "uninjected")}


def pod(name: str, gpus: int = 8, **annotations: str) -> dict:
    keys = {f"railwright.io/{key}": value for key, value in annotations.items()}
    return installations.pod(name, {names.FABRIC: "default"}, keys, gpus=gpus)


def test_existing_pods_are_planned_as_if_they_were_created_again():
    audited = '{"mode":"audit","rails":["rail0"]}'
    trees = build(
        pod("a"), pod("b", placement="{}", injection=audited), pod("c", rails="99"), pod("d", injection='{"rails":[]}')
    )
    trees["pods"][0]["spec"]["nodeName"] = "gpu-0"
    rows = assess(trees)
    row = next(row for row in rows["audit-mode"] if "existing pods, created again" in row.detail)
    assert row.state is check_rows.State.WARN
    assert (
        "of 3 existing pods, created again, 2 would be injected; 1 rejected (rails), such as Pod train/c: "
        in row.detail
    )
    assert "mode: enforce" in row.hint
    (uninjected,) = rows["uninjected"]
    assert uninjected.state is check_rows.State.OK, uninjected.detail


def test_a_job_with_the_label_only_on_the_job_counts():
    """Audit mode does not copy the label, so that its pods have none."""
    trees = build()
    labelled = installations.build_workload("Job", "llm", {}, labels={names.FABRIC: "default"})
    trees["jobs.v1.batch"] = [labelled]
    rows = assess(trees)["audit-mode"]
    text = "of 1 workload with the label only on the workload, created again, 1 would be injected"
    assert [row.subject for row in rows if text in row.detail] == ["roce"]
    labelled["spec"]["template"]["metadata"] = {"labels": {names.FABRIC: "default"}}
    assert not any(text in row.detail for row in assess(trees)["audit-mode"])


@pytest.mark.parametrize(("mode", "fabric_mode"), [("enforce", None), ("audit", "enforce")])
def test_an_enforced_fabric_is_not_mentioned(mode, fabric_mode):
    rows = assess(build(pod("a"), mode=mode, fabric_mode=fabric_mode))
    assert [row.state for row in rows["audit-mode"]] == [check_rows.State.OK]
    assert [row.state for row in rows["uninjected"]] == [check_rows.State.FAIL]


def test_pods_that_have_ended_are_not_planned():
    ended = pod("a")
    ended["status"] = {"phase": "Succeeded"}
    assert all(row.detail == "audit: no existing pod would change" for row in assess(build(ended))["audit-mode"])


def test_a_missing_network_counts_as_a_rejection():
    trees = build(pod("a"))
    trees["networks"] = []
    assert any("(missing-network)" in row.detail for row in assess(trees)["audit-mode"])
