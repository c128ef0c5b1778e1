"""Objects from which another controller makes pods: a label in them reaches the pods, and admission injects these."""

import pathlib

import pytest
import yaml
from admitting import admit_pod, fabric, read_policy

from railwright.cli.explanation import templates

DATA = pathlib.Path(__file__).parents[2] / "data" / "sources"
FABRIC = "railwright.io/fabric"
GPUS = {"limits": {"nvidia.com/gpu": "8"}}


def read(name):
    return yaml.safe_load((DATA / f"{name}.yaml").read_text())


def runtime(place):
    """Return the runtime with GPUs, and the label at a path."""
    tree = read("runtime")
    template = tree["spec"]["template"]
    (job,) = template["spec"]["replicatedJobs"]
    job["template"]["spec"]["template"]["spec"]["containers"][0]["resources"] = GPUS
    node = {"runtime": tree, "JobSet": template, "Job": job["template"], "pod": job["template"]["spec"]["template"]}
    node[place].setdefault("metadata", {}).setdefault("labels", {})[FABRIC] = "f"
    return tree


def cliques(*labelled):
    """Return the set with GPUs and the label on cliques."""
    tree = read("cliques")
    for clique in tree["spec"]["template"]["cliques"]:
        clique["spec"]["podSpec"]["containers"][0]["resources"] = GPUS
        if clique["name"] in labelled:
            clique["labels"] = {FABRIC: "f"}
    return tree


@pytest.mark.parametrize(
    ("kind", "place", "label"),
    [
        ("ClusterTrainingRuntime", "runtime", None),
        ("TrainingRuntime", "JobSet", "f"),
        ("ClusterTrainingRuntime", "Job", "f"),
        ("ClusterTrainingRuntime", "pod", "f"),
    ],
)
def test_pods_of_a_training_runtime_get_the_label_in_its_template(kind, place, label):
    (template,) = templates.list_templates(runtime(place) | {"kind": kind}, "train")
    assert template.pod["metadata"]["labels"].get(FABRIC) == label
    assert (template.part, template.pods) == ("replicated job node", 1)
    if label:
        limits = admit_pod(template.pod, fabric())["spec"]["containers"][0]["resources"]["limits"]
        assert limits["nvidia.com/mlx5_0"] == "1"


def test_each_clique_of_grove_opts_in_by_its_own_label():
    pods = templates.list_templates(cliques("pworker", "dworker"), "default")
    assert [(pod.part, pod.pods, pod.pod["metadata"].get("labels", {}).get(FABRIC)) for pod in pods] == [
        ("clique pleader", 1, None),
        ("clique pworker", 4, "f"),
        ("clique dleader", 1, None),
        ("clique dworker", 2, "f"),
    ]
    limits = admit_pod(pods[1].pod, fabric())["spec"]["containers"][0]["resources"]["limits"]
    assert limits["nvidia.com/mlx5_0"] == "1"


DYNAMO = """
apiVersion: railwright.io/v1alpha1
fabrics:
  f:
    transport: roce
    gpusPerNode: 4
    rails:
    - {name: rdma-0, interface: rdma0, resource: networking.gke.io.networks/rdma-0}
    - {name: rdma-1, interface: rdma1, resource: networking.gke.io.networks/rdma-1}
    - {name: rdma-2, interface: rdma2, resource: networking.gke.io.networks/rdma-2}
    - {name: rdma-3, interface: rdma3, resource: networking.gke.io.networks/rdma-3}
    annotations:
      networking.gke.io/default-interface: eth0
      networking.gke.io/interfaces: >-
        [{"interfaceName": "eth0", "network": "default"},
        {"interfaceName": "rdma0", "network": "rdma-0"}, {"interfaceName": "rdma1", "network": "rdma-1"},
        {"interfaceName": "rdma2", "network": "rdma-2"}, {"interfaceName": "rdma3", "network": "rdma-3"}]
    nccl: {derive: false}
    env:
      NCCL_SOCKET_IFNAME: eth0
      GLOO_SOCKET_IFNAME: eth0
      NCCL_NVLS_ENABLE: "1"
      NCCL_MNNVL_ENABLE: "1"
      NCCL_CUMEM_ENABLE: "1"
    nvlinkSegment: 1
    placement: {domains: [nvidia.com/gpu.clique]}
    security: {capabilities: [IPC_LOCK]}
"""


def strip(component):
    """Remove the network's settings from a component of Dynamo, and label it."""
    component["podTemplate"]["metadata"] = {"labels": {FABRIC: "f"}}
    (container,) = component["podTemplate"]["spec"]["containers"]
    container["env"] = [row for row in container["env"] if not row["name"].startswith(("NCCL_", "GLOO_"))]
    container["resources"]["limits"] = {"nvidia.com/gpu": "4"}
    container["securityContext"]["capabilities"]["add"].remove("IPC_LOCK")


def test_dynamo_components_with_a_label_get_the_pods_of_the_published_manifest():
    published = templates.list_templates(read("dynamo"), "default")
    assert [(pod.part, pod.pods) for pod in published] == [
        ("component Frontend", 1),
        ("component PrefillWorker", 1),
        ("component DecodeWorker", 1),
    ]
    tree = read("dynamo")
    for component in tree["spec"]["components"][1:]:
        strip(component)
    for before, after in zip(published, templates.list_templates(tree, "default"), strict=True):
        if FABRIC not in after.pod["metadata"].get("labels", {}):
            assert after.pod == before.pod  # the frontend
            continue
        pod = admit_pod(after.pod, read_policy(DYNAMO))
        assert read_network(pod) == read_network(before.pod)


def read_network(pod):
    """Return annotations, devices, capabilities, claims and the variables of NCCL and Gloo."""
    (container,) = pod["spec"]["containers"]
    annotations = {key: yaml.safe_load(value) for key, value in pod["metadata"]["annotations"].items() if "gke" in key}
    env = {row["name"]: row["value"] for row in container["env"] if row["name"].startswith(("NCCL_", "GLOO_"))}
    env.pop("NCCL_STORE_TIMEOUT", None)  # of PyTorch's store; NCCL has no such variable
    limits = {name: amount for name, amount in container["resources"]["limits"].items() if "railwright" not in name}
    return (
        annotations,
        env,
        limits,
        sorted(container["securityContext"]["capabilities"]["add"]),
        pod["spec"]["resourceClaims"],
    )
