"""A gang in NVLink domains: NCCL's variables, and a channel of a ComputeDomain that the author names."""

import copy

import pytest
from admitting import (
    admit_pod,
    build_facts,
    fabric,
    gpus,
    pod,
    read_env,
    read_limits,
)

CHANNELS = frozenset({"compute-domain-default-channel.nvidia.com"})
DOMAINS = "    placement: {domains: [nvidia.com/gpu.clique, leaf]}\n"


def nvlink_fabric(segment=1, more="    gpusPerNode: 4\n", **changes):
    return fabric(f"    nvlinkSegment: {segment}\n{DOMAINS}{more}", **changes)


def rank(job="train", count=4, **more):
    return pod(gpus(count), labels={"batch.kubernetes.io/job-name": job}, **more)


CLAIMS = nvlink_fabric(
    more="    gpusPerNode: 4\n    claims: {deviceClass: dranet, acceleratorClass: gpu.nvidia.com}\n",
    rails="[{name: rail0, device: mlx5_0}, {name: rail1, device: mlx5_1}]",
)
FACTS = build_facts(claim_templates={("prod", "mine"): CHANNELS})


def name_channel():
    """Return a pod whose author gives it a channel of a ComputeDomain, which writes the template `mine`."""
    tree = rank(resourceClaims=[{"name": "imex", "resourceClaimTemplateName": "mine"}])
    tree["spec"]["containers"][0]["resources"]["claims"] = [{"name": "imex"}]
    return tree


@pytest.mark.parametrize(("policy", "names"), [(CLAIMS, ["imex", "railwright"]), (nvlink_fabric(), ["imex"])])
def test_an_authors_nvlink_channel_claim_is_kept_beside_the_claims_of_rails(policy, names):
    once = admit_pod(name_channel(), policy, FACTS)
    assert [entry["name"] for entry in once["spec"]["resourceClaims"]] == names
    assert [claim["name"] for claim in once["spec"]["containers"][0]["resources"]["claims"]] == names
    assert admit_pod(copy.deepcopy(once), policy, FACTS) == once


def test_nccl_variables_for_memory_over_nvlink_are_set():
    assert read_env(admit_pod(rank(), nvlink_fabric()))["NCCL_CUMEM_ENABLE"] == "1"
    assert "NCCL_CUMEM_ENABLE" not in read_env(admit_pod(rank(), fabric()))


@pytest.mark.parametrize("source", ["resourceClaimTemplateName", "resourceClaimName"])
def test_an_unreadable_claim_template_is_treated_as_an_nvlink_channel(source):
    """The devices of the author's ResourceClaim are unknown, also with the right to read templates."""
    by = nvlink_fabric(rails="[{name: rail0, device: mlx5_0}]", transport="infiniband")
    tree = name_channel()
    tree["spec"]["resourceClaims"] = [{"name": "imex", source: "mine"}]
    result = admit_pod(tree, by, build_facts(claim_templates={}, without_templates=True))
    is_channel = source == "resourceClaimTemplateName"
    assert read_env(result).get("NCCL_IB_HCA") == ("=mlx5_0" if is_channel else None)
    assert ("railwright.io/rails" in read_limits(result)) is not is_channel
