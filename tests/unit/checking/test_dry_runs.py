"""The dry-run pod of each fabric is one that the webhook admits."""

import pathlib

import admitting
import installations
import pytest

from railwright.cli.checking import admission
from railwright.cli.clouds import profiles
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


@pytest.mark.parametrize("profile", profiles.list_profiles(), ids=lambda profile: profile.name)
def test_the_webhook_admits_the_dry_run_pod_of_each_fabric_of_a_profile(profile):
    trees = installations.healthy()
    trees["policy"][0]["data"][names.POLICY_KEY] = profile.read_text("policy.yaml")
    plans = admission.list_plans(installations.seen(trees))
    known = admitting.known(networks=None)
    assert {plan.fabric for plan in plans} == set(profile.policy.document.fabrics)
    for plan in plans:
        pod = admission.build_pod(plan, profile.policy.document.accelerators[0])
        assert names.INJECTION in admitting.admitted(pod, profile.policy, known)["metadata"]["annotations"]
