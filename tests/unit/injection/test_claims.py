"""Pods whose rails come as claims: those that railwright adds, those of the author, and channels of NVLink domains."""

import copy
import re

import admitting
import pytest
from admitting import (
    admit_pod,
    build_facts,
    cpu,
    decode_pod,
    fabric,
    get_refusal,
    gpus,
    list_claim_templates,
    list_messages,
    plan_pod,
    pod,
    read_env,
    read_limits,
    read_record,
    read_skipped,
)

from railwright.fabric.injection import claim_requests, context, facts, plan

DEVICES = ("rdmap16s27", "rdmap32s27", "rdmap144s27", "rdmap160s27")
RAILS = "".join(f"\n    - {{name: rail{rail}, device: {device}}}" for rail, device in enumerate(DEVICES)) + "\n"
GPUS = "acceleratorClass: gpu.nvidia.com"
JOB = {"batch.kubernetes.io/job-name": "train"}
ANNOTATED, CHOSEN = {"railwright.io/rails": "2"}, {"railwright.io/rails": "rail2,rail3"}


def build_claims_policy(more="", *, claims="", rails=RAILS, per_pod="proportional"):
    section = f"    gpusPerNode: 8\n    railsPerPod: {per_pod}\n    claims: {{deviceClass: dranet{claims}}}\n"
    return fabric(section + more, rails=rails, transport="efa")


def build_gpu_claims_policy(**more):
    return build_claims_policy(claims=f", {GPUS}", **more)


def find_plan(tree, by, **more):
    at = facts.ClusterFacts(namespace="prod", **more)
    ctx = context.build_context(decode_pod(tree), by, at, "f", context.UserOptions())
    return claim_requests.plan_claims(decode_pod(tree), ctx)


def test_a_claim_replaces_the_gpu_requests():
    result = admit_pod(pod(gpus(4)), build_gpu_claims_policy())
    (template,) = list_claim_templates(result)
    assert re.fullmatch(r"railwright-f-4x2-[0-9a-f]{10}", template)
    assert result["spec"]["containers"][0]["resources"] == {
        "limits": {"railwright.io/rails": "0"},
        "requests": {"railwright.io/rails": "0"},
        "claims": [{"name": "railwright"}],
    }
    assert "claims" in read_record(result)["added"]


def test_gpus_stay_requested_if_the_policy_pairs_no_gpus_with_nics():
    result = admit_pod(pod(gpus(8)), build_claims_policy(claims=", pairBy: none"))
    assert read_limits(result) == {"nvidia.com/gpu": "8", "railwright.io/rails": "0"}
    assert list_claim_templates(result)[0].startswith("railwright-f-0x4-")


def test_the_name_of_a_claim_template_changes_only_with_its_content():
    """A change of the policy that changes no template keeps the existing templates in use."""
    by = build_gpu_claims_policy()
    names = [
        *list_claim_templates(admit_pod(pod(gpus(8)), by)),
        *list_claim_templates(admit_pod(pod(gpus(4)), by)),
        *list_claim_templates(admit_pod(pod(gpus(8), annotations={"railwright.io/rails": "rail0,rail1"}), by)),
        *list_claim_templates(admit_pod(pod(gpus(8), annotations={"railwright.io/rails": "rail1,rail2"}), by)),
        *list_claim_templates(admit_pod(pod(gpus(8)), build_claims_policy(claims=f", {GPUS}, pairBy: numaNode"))),
    ]
    assert len(set(names)) == len(names)
    other = build_claims_policy("    mounts: {sharedMemory: 64Gi}\n", claims=f", {GPUS}")
    for policy in (by, other):
        assert list_claim_templates(admit_pod(pod(gpus(8), labels=JOB), policy)) == names[:1]


@pytest.mark.parametrize("labels", [{}, JOB], ids=["a pod on its own", "a pod of a gang"])
def test_claims_for_a_number_of_rails_name_no_rails(labels):
    ((name, devices),) = find_plan(pod(gpus(2), labels=labels), build_gpu_claims_policy()).templates.items()
    assert name.startswith("railwright-f-2x1-")
    nic = devices["requests"][-1]
    assert nic["name"] == "nic0"
    path = 'device.attributes["dra.net"].rdmaDevice'
    names = ", ".join(f'"{name}"' for name in DEVICES)
    assert nic["exactly"]["selectors"] == [{"cel": {"expression": f"has({path}) && {path} in [{names}]"}}]
    assert devices["constraints"][0]["requests"] == ["gpu0", "gpu1", "nic0"]


@pytest.mark.parametrize(
    ("tree", "requests"),
    [
        (pod(gpus(8)), ["rail0", "rail1", "rail2", "rail3"]),  # all rails
        (pod(gpus(4), annotations=CHOSEN), ["rail2", "rail3"]),
        (pod(gpus(8), annotations=ANNOTATED), ["nic0", "nic1"]),
    ],
)
def test_rails_that_the_pod_names_are_requested_by_name(tree, requests):
    (devices,) = find_plan(tree, build_gpu_claims_policy()).templates.values()
    assert [request["name"] for request in devices["requests"] if not request["name"].startswith("gpu")] == requests


def test_a_pod_is_refused_if_its_claim_template_has_another_content():
    """Its name has the hash of other content, so another writer has changed it."""
    (name,) = list_claim_templates(admit_pod(pod(gpus(4)), build_gpu_claims_policy()))
    message = get_refusal(
        pod(gpus(4)), build_gpu_claims_policy(), build_facts(claim_templates={("prod", name): frozenset({"dranet"})})
    )
    assert f"ResourceClaimTemplate prod/{name} has another content" in message
    assert "delete it" in message
    elsewhere = build_facts(claim_templates={("other", name): frozenset({"dranet"})})
    assert list_claim_templates(admit_pod(pod(gpus(4)), build_gpu_claims_policy(), elsewhere)) == [name]


def test_a_claim_that_the_author_wrote_is_kept():
    tree = pod(
        gpus(4) | {"resources": {"claims": [{"name": "mine"}], "limits": {"nvidia.com/gpu": "4"}}},
        resourceClaims=[{"name": "mine", "resourceClaimTemplateName": "pairs"}],
    )
    at = build_facts(claim_templates={("prod", "pairs"): frozenset({"dranet"})})
    result = admit_pod(tree, build_gpu_claims_policy(), at)
    assert list_claim_templates(result) == ["pairs"]
    assert read_limits(result) == {"nvidia.com/gpu": "4", "railwright.io/rails": "0"}
    assert "mine" in read_skipped(result)["claims"]
    channel = build_facts(claim_templates={("prod", "pairs"): frozenset({"compute-domain.nvidia.com"})})
    assert (
        len(list_claim_templates(admit_pod(tree, build_gpu_claims_policy(), channel))) == 2
    )  # a claim for something else stays beside it


def test_more_devices_than_a_claim_may_have_are_in_two_claims():
    rails = "".join(f"\n    - {{name: rail{rail}, device: efa{rail}}}" for rail in range(32)) + "\n"
    large = admit_pod(pod(gpus(8)), build_gpu_claims_policy(rails=rails))
    assert [name[:18] for name in list_claim_templates(large)] == ["railwright-f-8x32-"] * 2
    assert large["spec"]["containers"][0]["resources"]["claims"] == [{"name": "railwright"}, {"name": "railwright-2"}]


@pytest.mark.parametrize("init", [gpus(1, "diagnose"), gpus(1, "monitor", restartPolicy="Always")])
def test_gpus_stay_extended_resources_if_an_init_container_requests_some(init):
    after = admit_pod(pod(gpus(4), initContainers=[init]), build_gpu_claims_policy())
    assert after["spec"]["initContainers"] == [init]
    assert (
        "request none there"
        in list_messages(plan_pod(pod(gpus(4), initContainers=[init]), build_gpu_claims_policy()))[0]
    )
    assert read_limits(after)["nvidia.com/gpu"] == "4"
    assert list_claim_templates(after)[0].startswith("railwright-f-0x")


def test_a_pod_that_names_its_node_is_refused_where_a_scheduler_must_allocate_claims():
    assert plan_pod(pod(gpus(2), nodeName="gpu-0"), build_gpu_claims_policy()).reason == "node-name"
    own = facts.ClusterFacts(namespace="prod", claim_templates={("prod", "nics"): frozenset({"dranet"})})
    claim = [{"name": "mine", "resourceClaimTemplateName": "nics"}]
    outcome = plan_pod(pod(gpus(2), nodeName="gpu-0", resourceClaims=claim), build_gpu_claims_policy(), own)
    assert isinstance(outcome, plan.Injection), "an author's own claim may be allocated already"
    cpu_only = pod(cpu(), nodeName="gpu-0")
    assert read_record(admit_pod(cpu_only, build_gpu_claims_policy()))["role"] == "excluded"


# --- claims of the pod's author for rails or GPUs ---------------------------------------------------------------

LABEL = "railwright.io/fabric"
UNNAMED = "[{name: rail0, device: mlx5_0}, {name: rail1, device: mlx5_1}]"  # no resource: they come as claims
CLAIM = {"name": "nics", "resourceClaimTemplateName": "nics"}
CALL = "railwright.io/rails"


def build_claiming_container(name: str = "c", **more) -> dict:
    return {"name": name, "image": "i", "resources": {"claims": [{"name": "nics"}]}, **more}


def build_claiming_pod(*containers: dict, **more) -> dict:
    return pod(*(containers or (build_claiming_container(),)), resourceClaims=[CLAIM], **more)


def test_the_namespace_opts_in_pods_with_a_claim_in_an_app_container():
    at = build_facts(namespace_labels={LABEL: "f"})
    policy = fabric(rails=UNNAMED)
    assert isinstance(plan_pod(build_claiming_pod(label=None), policy, at), plan.Injection)
    unused = build_claiming_pod(cpu(), label=None, initContainers=[build_claiming_container("init")])
    assert plan_pod(unused, policy, at) == plan.NotOptedIn()


def test_the_container_with_the_claim_is_the_target_container():
    policy = fabric(rails=UNNAMED)
    tree = admit_pod(build_claiming_pod(cpu("sidecar"), build_claiming_container("train")), policy)
    assert read_record(tree)["containers"] == ["train"]
    assert admitting.read_limits(tree, 1) == {CALL: "0"}
    beside_gpus = admit_pod(build_claiming_pod(build_claiming_container("loader"), gpus(8, "train")), policy)
    assert read_record(beside_gpus)["containers"] == ["train"]


def test_a_pod_with_only_claims_gets_a_limit_of_a_managed_resource_once():
    policy = fabric(rails=UNNAMED)
    tree = admit_pod(build_claiming_pod(), policy)
    assert tree["spec"]["containers"][0]["resources"] == {
        "claims": [{"name": "nics"}],
        "requests": {CALL: "0"},
        "limits": {CALL: "0"},
    }
    own = admit_pod(
        build_claiming_pod(
            build_claiming_container() | {"resources": {"claims": [{"name": "nics"}], "limits": {CALL: "0"}}}
        ),
        policy,
    )
    assert "requests" not in own["spec"]["containers"][0]["resources"]


def test_the_preflight_uses_the_claims_of_the_target_container():
    tree = admit_pod(build_claiming_pod(), fabric("    resolve: always\n    preflight: {image: i}\n", rails=UNNAMED))
    (preflight,) = tree["spec"]["initContainers"]
    assert preflight["resources"] == {"claims": [{"name": "nics"}]}
    arguments = preflight["command"]
    assert [arguments[index + 1] for index, word in enumerate(arguments) if word == "--rail"] == ["rail0", "rail1"]


# --- gangs in NVLink domains, and the channel of a ComputeDomain that the author names --------------------------

CHANNELS = frozenset({"compute-domain-default-channel.nvidia.com"})
DOMAINS = "    placement: {domains: [nvidia.com/gpu.clique, leaf]}\n"


def nvlink_fabric(segment=1, more="    gpusPerNode: 4\n", **changes):
    return fabric(f"    nvlinkSegment: {segment}\n{DOMAINS}{more}", **changes)


def rank(job="train", count=4, **more):
    return pod(gpus(count), labels={"batch.kubernetes.io/job-name": job}, **more)


WITH_CLAIMS = nvlink_fabric(
    more="    gpusPerNode: 4\n    claims: {deviceClass: dranet, acceleratorClass: gpu.nvidia.com}\n",
    rails="[{name: rail0, device: mlx5_0}, {name: rail1, device: mlx5_1}]",
)
WITH_CHANNEL = build_facts(claim_templates={("prod", "mine"): CHANNELS})


def name_channel():
    """Return a pod whose author gives it a channel of a ComputeDomain, which writes the template `mine`."""
    tree = rank(resourceClaims=[{"name": "imex", "resourceClaimTemplateName": "mine"}])
    tree["spec"]["containers"][0]["resources"]["claims"] = [{"name": "imex"}]
    return tree


@pytest.mark.parametrize(("policy", "names"), [(WITH_CLAIMS, ["imex", "railwright"]), (nvlink_fabric(), ["imex"])])
def test_an_authors_nvlink_channel_claim_is_kept_beside_the_claims_of_rails(policy, names):
    once = admit_pod(name_channel(), policy, WITH_CHANNEL)
    assert [entry["name"] for entry in once["spec"]["resourceClaims"]] == names
    assert [claim["name"] for claim in once["spec"]["containers"][0]["resources"]["claims"]] == names
    assert admit_pod(copy.deepcopy(once), policy, WITH_CHANNEL) == once


def test_ranks_get_nccl_cumem_enable_only_in_a_fabric_with_nvlink_domains():
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
