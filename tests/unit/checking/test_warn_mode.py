"""`check` of a policy in mode `warn`, whose pods have no record. The admission policies pass them only with Warn."""

import broken_installations
import installations
import pytest
import yaml

from railwright.cli.checking.rows import Result, State
from railwright.fabric import names


def assess(mode: str, action: str = "Warn") -> dict[str, Result]:
    trees = installations.healthy()
    (config,) = trees["policy"]
    document = yaml.safe_load(config["data"]["policy.yaml"])
    document["mode"] = mode
    config["data"]["policy.yaml"] = yaml.safe_dump(document)
    trees["pods"] = [installations.pod("a", {names.FABRIC: "default"}, {}, gpus=8)]
    for binding in trees["admission-bindings"]:
        binding["spec"]["validationActions"] = [action]
    rows = broken_installations.assess_trees(trees)
    return {row.check: row for row in rows if row.check in ("warn-mode", "uninjected")}


@pytest.mark.parametrize(
    ("mode", "action", "warned", "uninjected"),
    [
        ("enforce", "Warn", State.OK, State.FAIL),
        ("warn", "Warn", State.WARN, State.OK),
        ("warn", "Deny", State.FAIL, State.OK),
    ],
)
def test_mode_warn_is_reported_and_its_pods_do_not_count_as_missed(mode, action, warned, uninjected):
    results = assess(mode, action)
    assert {check: row.state for check, row in results.items()} == {"warn-mode": warned, "uninjected": uninjected}
    assert ("Until then let opted-in pods pass" in results["warn-mode"].hint) == (action == "Deny")
