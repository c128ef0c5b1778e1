"""Pods whose authors wrote claims of rails or GPUs: opt-in, target container, and the call of the extender."""

import admitting
import pytest
from admitting import admitted, cpu, fabric, gpus, known, planned, pod, record, variables

from railwright.fabric.injection import pod_changes

LABEL = "railwright.io/fabric"
UNNAMED = "[{name: rail0, device: mlx5_0}, {name: rail1, device: mlx5_1}]"  # no resource: they come as claims
CLAIM = {"name": "nics", "resourceClaimTemplateName": "nics"}
CALL = "railwright.io/rails"


def claiming(name: str = "c", **more) -> dict:
    return {"name": name, "image": "i", "resources": {"claims": [{"name": "nics"}]}, **more}


def build_claiming_pod(*containers: dict, **more) -> dict:
    return pod(*(containers or (claiming(),)), resourceClaims=[CLAIM], **more)


def test_the_namespace_opts_in_pods_with_a_claim_in_an_app_container():
    at = known(namespace_labels={LABEL: "f"})
    policy = fabric(rails=UNNAMED)
    assert isinstance(planned(build_claiming_pod(label=None), policy, at), pod_changes.Injection)
    unused = build_claiming_pod(cpu(), label=None, initContainers=[claiming("init")])
    assert planned(unused, policy, at) == pod_changes.NotOptedIn()


def test_the_container_that_uses_the_claim_gets_the_fabric():
    policy = fabric(rails=UNNAMED)
    tree = admitted(build_claiming_pod(cpu("sidecar"), claiming("train")), policy)
    assert record(tree)["containers"] == ["train"]
    assert admitting.limits(tree, 1) == {CALL: "0"}
    beside_gpus = admitted(build_claiming_pod(claiming("loader"), gpus(8, "train")), policy)
    assert record(beside_gpus)["containers"] == ["train"]


def test_a_pod_with_claims_alone_gets_a_limit_of_a_managed_resource_once():
    policy = fabric(rails=UNNAMED)
    tree = admitted(build_claiming_pod(), policy)
    assert tree["spec"]["containers"][0]["resources"] == {
        "claims": [{"name": "nics"}],
        "requests": {CALL: "0"},
        "limits": {CALL: "0"},
    }
    assert planned(tree, policy).changes == ()
    own = admitted(
        build_claiming_pod(claiming() | {"resources": {"claims": [{"name": "nics"}], "limits": {CALL: "0"}}}), policy
    )
    assert "requests" not in own["spec"]["containers"][0]["resources"]


def test_rails_of_a_device_plugin_beside_claimed_gpus_stay_requests():
    tree = admitted(build_claiming_pod(), fabric())
    assert admitting.limits(tree) == {"nvidia.com/mlx5_0": "1", "nvidia.com/mlx5_1": "1"}
    assert admitting.env(tree)["NCCL_IB_HCA"] == "=mlx5_0,mlx5_1"


@pytest.mark.parametrize(
    "tree",
    [
        build_claiming_pod(claiming(env=[{"name": "NCCL_IB_HCA", "value": "mlx5"}])),
        build_claiming_pod(annotations={"railwright.io/skip": "env"}),
    ],
    ids=["its own list", "skipped"],
)
def test_a_list_of_the_author_gets_no_placeholder(tree):
    assert "railwright.io/nccl.conf" not in admitted(tree, fabric(rails=UNNAMED))["metadata"]["annotations"]


def test_a_pod_that_a_missed_binding_leaves_without_devices_fails_in_nccl():
    """NCCL would use every HCA that the container sees if the file were empty."""
    tree = admitted(build_claiming_pod(), fabric(rails=UNNAMED))
    assert tree["metadata"]["annotations"]["railwright.io/nccl.conf"].splitlines() == [
        "NCCL_IB_HCA==not-written-at-binding",
        "NCCL_NET=not-written-at-binding",
    ]
    assert "/etc/nccl.conf" in [mount["mountPath"] for mount in tree["spec"]["containers"][0]["volumeMounts"]]
    assert admitting.skipped(tree)["env.NCCL_IB_HCA"] == "written at binding"


def test_the_preflight_has_the_claims_and_the_annotation_that_lists_their_devices():
    tree = admitted(build_claiming_pod(), fabric("    preflight: {enabled: true, image: i}\n", rails=UNNAMED))
    (preflight,) = tree["spec"]["initContainers"]
    assert preflight["resources"] == {"claims": [{"name": "nics"}]}
    arguments = preflight["command"]
    assert arguments[arguments.index("--allocation") + 1] == "/etc/railwright/placement.json"
    assert [arguments[index + 1] for index, word in enumerate(arguments) if word == "--rail"] == ["rail0", "rail1"]
    mounts = {mount["name"]: mount["mountPath"] for mount in preflight["volumeMounts"]}
    assert mounts == {
        "railwright-nccl-conf": "/etc/nccl.conf",
        "railwright-placement": "/etc/railwright/placement.json",
    }
    (volume,) = [volume for volume in tree["spec"]["volumes"] if volume["name"] == "railwright-placement"]
    (item,) = volume["downwardAPI"]["items"]
    assert item["fieldRef"]["fieldPath"] == "metadata.annotations['railwright.io/placement']"
    assert planned(tree, fabric("    preflight: {enabled: true, image: i}\n", rails=UNNAMED)).changes == ()


UCX = "railwright.io/ucx-net-devices"


def test_ucx_reads_its_devices_from_the_annotation_that_binding_writes():
    policy = fabric(rails=UNNAMED)
    tree = admitted(build_claiming_pod(), policy)
    assert tree["metadata"]["annotations"][UCX] == "not-written-at-binding:1"
    (entry,) = [entry for entry in tree["spec"]["containers"][0]["env"] if entry["name"] == "UCX_NET_DEVICES"]
    assert entry == {
        "name": "UCX_NET_DEVICES",
        "valueFrom": {"fieldRef": {"fieldPath": f"metadata.annotations['{UCX}']"}},
    }
    assert "env.UCX_NET_DEVICES" in record(tree)["added"]
    assert planned(tree, policy).changes == ()
    forged = admitted(build_claiming_pod(annotations={UCX: "mlx5_9:1"}), policy)
    assert forged["metadata"]["annotations"][UCX] == "not-written-at-binding:1"


@pytest.mark.parametrize(
    ("tree", "more", "transport"),
    [
        (build_claiming_pod(claiming(env=variables(UCX_NET_DEVICES="all"))), "", "roce"),
        (build_claiming_pod(claiming(envFrom=[{"configMapRef": {"name": "site"}}])), "", "roce"),
        (build_claiming_pod(), "    env: {UCX_NET_DEVICES: all}\n", "roce"),
        (build_claiming_pod(claiming(env=variables(UCX_TLS="tcp,cuda_copy,self"))), "", "roce"),
        (build_claiming_pod(claiming(env=variables(UCX_TLS="^ib"))), "", "roce"),
        (build_claiming_pod(), "    env: {UCX_TLS: 'tcp,self'}\n", "roce"),
        (build_claiming_pod(), "", "efa"),
        (build_claiming_pod(), "    nccl: {derive: false}\n", "roce"),
        (build_claiming_pod(nodeName="n"), "", "roce"),
    ],
    ids=["own value", "envFrom", "policy", "TCP", "no InfiniBand", "TCP by policy", "EFA", "nothing derived", "node"],
)
def test_ucx_without_need_of_devices_gets_no_annotation(tree, more, transport):
    after = admitted(tree, fabric(more, rails=UNNAMED, transport=transport))
    assert UCX not in after["metadata"]["annotations"]


def test_lint_has_no_finding_about_the_placeholder():
    from railwright.fabric import admission

    outcome = admission.plan(admitting.view(build_claiming_pod()), fabric(rails=UNNAMED), known())
    assert isinstance(outcome, pod_changes.Injection)
    assert outcome.warnings == ()
