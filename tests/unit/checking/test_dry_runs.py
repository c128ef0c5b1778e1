"""The dry-run pod of each fabric is one that the webhook admits."""

import pathlib

import installations
import pytest

from railwright.cli.checking import admission
from railwright.fabric import names

EXAMPLES = pathlib.Path(__file__).resolve().parents[3] / "manifests" / "examples"


@pytest.mark.parametrize(
    ("example", "fabric", "allowed"),
    [("pvrdma-mpi", "pvrdma", None), ("pvrdma-mpi", "tcp", False), ("360-roce", "roce-derived", False)],
)
def test_only_the_dry_run_pod_of_a_privileged_fabric_may_become_privileged(example, fabric, allowed):
    trees = installations.healthy()
    trees["policy"][0]["data"][names.POLICY_KEY] = (EXAMPLES / example / "policy.yaml").read_text()
    plans = {plan.fabric: plan for plan in admission.list_plans(installations.seen(trees))}
    (container,) = admission.build_pod(plans[fabric], "nvidia.com/gpu")["spec"]["containers"]
    assert container.get("securityContext", {}).get("allowPrivilegeEscalation") is allowed
