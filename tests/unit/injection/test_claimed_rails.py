"""Pods with their authors' own claims for rails or GPUs: opt-in, target container, and the call of the extender."""

import admitting
from admitting import admit_pod, build_facts, cpu, fabric, gpus, plan_pod, pod, read_record

from railwright.fabric.injection import plan

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
