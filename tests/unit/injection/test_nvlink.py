"""A gang in NVLink domains: each pod that takes a node gets a channel of the gang's ComputeDomain."""

import copy
import re

import pytest
from admitting import (
    admitted,
    env,
    fabric,
    gpus,
    known,
    list_claim_templates,
    messages,
    planned,
    pod,
    record,
    refusal,
    skipped,
)

CHANNEL = re.compile(r"railwright-nvlink-[0-9a-f]{20}")
CHANNELS = frozenset({"compute-domain-default-channel.nvidia.com"})
DOMAINS = "    placement: {domains: [nvidia.com/gpu.clique, leaf]}\n"


def nvlink_fabric(nvlink="{}", more="    gpusPerNode: 4\n", **changes):
    return fabric(f"    nvlink: {nvlink}\n{DOMAINS}{more}", **changes)


def rank(job="train", count=4, **more):
    return pod(gpus(count), labels={"batch.kubernetes.io/job-name": job}, **more)


def test_all_pods_of_a_gang_get_a_channel_of_one_compute_domain():
    first, second, other = (admitted(rank(job), nvlink_fabric()) for job in ("a", "a", "b"))
    (template,) = list_claim_templates(first)
    assert CHANNEL.fullmatch(template)
    assert list_claim_templates(second) == [template] != list_claim_templates(other)
    assert first["spec"]["containers"][0]["resources"]["claims"] == [{"name": "railwright-nvlink"}]
    assert first["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "4"
    assert "nvlink" in record(first)["added"]


CLAIMS = nvlink_fabric(
    more="    gpusPerNode: 4\n    claims: {deviceClass: dranet, accelerators: {deviceClass: gpu.nvidia.com}}\n",
    rails="[{name: rail0, device: mlx5_0}, {name: rail1, device: mlx5_1}]",
)


@pytest.mark.parametrize(("gpus", "names"), [(4, {"railwright", "railwright-nvlink"}), (2, {"railwright"})])
def test_the_channel_is_beside_the_claims_of_rails_and_gpus_which_count_once(gpus, names):
    once = admitted(rank(count=gpus), CLAIMS)
    assert {entry["name"] for entry in once["spec"]["resourceClaims"]} == names
    assert {claim["name"] for claim in once["spec"]["containers"][0]["resources"]["claims"]} == names
    assert admitted(copy.deepcopy(once), CLAIMS) == once


def test_another_claim_of_the_name_rejects_the_pod():
    entry = {"name": "railwright-nvlink", "resourceClaimName": "mine"}
    message = refusal(rank(resourceClaims=[entry]), nvlink_fabric())
    assert message.startswith("Pod prod/p: spec.resourceClaims[0] has the name 'railwright-nvlink', which railwright")
    assert "rename it" in message


@pytest.mark.parametrize(
    ("tree", "policy"),
    [
        (pod(gpus(4)), nvlink_fabric()),
        (rank(), nvlink_fabric("{computeDomain: none}")),
        (rank(), fabric("    gpusPerNode: 4\n")),
    ],
    ids=["pod on its own", "switched off", "no NVLink domains"],
)
def test_other_pods_get_no_channel(tree, policy):
    assert list_claim_templates(admitted(tree, policy)) == []


def test_a_pod_that_shares_its_node_gets_none_and_is_warned():
    outcome = planned(rank(count=2), nvlink_fabric())
    assert skipped(admitted(rank(count=2), nvlink_fabric()))["nvlink"].startswith("the pod gets no channel")
    assert any("NVLink" in message for message in messages(outcome))


def test_a_channel_of_the_author_stays():
    entry = {"name": "imex", "resourceClaimTemplateName": "mine"}
    facts = known(claim_templates={("prod", "mine"): CHANNELS})
    tree = rank(resourceClaims=[entry])
    assert list_claim_templates(admitted(tree, nvlink_fabric(), facts)) == ["mine"]
    assert skipped(admitted(tree, nvlink_fabric(), facts))["nvlink"] == (
        "the pod's claim imex is a channel of another ComputeDomain"
    )


def test_the_template_that_the_driver_writes_for_us_is_not_the_authors():
    once = admitted(rank(), nvlink_fabric())
    facts = known(claim_templates={("prod", list_claim_templates(once)[0]): CHANNELS})
    assert admitted(copy.deepcopy(once), nvlink_fabric(), facts) == once


def test_nccl_gets_the_memory_that_nvlink_needs_and_fails_without_it_where_required():
    assert env(admitted(rank(), nvlink_fabric()))["NCCL_CUMEM_ENABLE"] == "1"
    assert "NCCL_MNNVL_ENABLE" not in env(admitted(rank(), nvlink_fabric()))
    assert env(admitted(rank(), nvlink_fabric("{required: true}")))["NCCL_MNNVL_ENABLE"] == "1"
    assert "NCCL_CUMEM_ENABLE" not in env(admitted(rank(), fabric()))


@pytest.mark.parametrize("own", [False, True])
def test_a_channel_brings_no_rails_so_their_devices_are_known(own):
    rails = "".join(f"\n    - {{name: rail{rail}, device: mlx5_{rail}}}" for rail in range(2)) + "\n"
    entry = [{"name": "imex", "resourceClaimTemplateName": "mine"}] if own else []
    tree = rank(resourceClaims=entry)
    tree["spec"]["containers"][0]["resources"]["claims"] = [{"name": "imex"}] if own else []
    result = admitted(tree, nvlink_fabric(rails=rails), known(claim_templates={("prod", "mine"): CHANNELS}))
    assert env(result)["NCCL_IB_HCA"] == "=mlx5_0,mlx5_1"


@pytest.mark.parametrize("value", ["", "0", "two", "-1", "1.5", "1000000"])
def test_a_segment_that_is_no_number_is_rejected(value):
    tree = rank(annotations={"railwright.io/segment": value})
    assert "is not a number of ranks from 1 to 999999" in refusal(tree, nvlink_fabric())


def test_a_segment_changes_nothing_of_the_pod():
    tree = rank(annotations={"railwright.io/segment": "16"})
    assert admitted(tree, nvlink_fabric())["spec"] == admitted(rank(), nvlink_fabric())["spec"]
