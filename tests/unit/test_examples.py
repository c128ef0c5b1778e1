"""The shipped examples: each job with one label comes out of admission as its hand-written twin."""

import base64
import copy
import json
from pathlib import Path

import jsonpatch
import pytest
import yaml

from cluster import policies
from fabric import names, networks, quantity
from fabric.injection import facts
from webhook import pods

EXAMPLES = Path(__file__).parents[2] / "manifests" / "examples"
SITES = ("360-roce", "360-infiniband")
FABRIC_ENV = ("NCCL_", "GLOO_", "TP_")
RDMA = tuple(f"nvidia.com/mlx5_{index}" for index in range(4))


def load(site: str, name: str) -> dict:
    return yaml.safe_load((EXAMPLES / site / f"{name}.yaml").read_text())


def policy_of(site: str):
    policy = policies.read((EXAMPLES / site / "policy.yaml").read_text())
    assert not isinstance(policy, policies.Rejected), policy
    return policy


def pod_of(job: dict) -> dict:
    """The pod Volcano would create, as far as the template decides it; nothing in it is shared."""
    (task,) = job["spec"]["tasks"]
    template = json.loads(json.dumps(task["template"]))  # unties YAML's aliases
    metadata = template.get("metadata", {}) | {"name": "rdma-test-master-0", "namespace": "prod"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


def admitted(site: str, pod: dict, known: facts.Facts | None = None) -> dict:
    request = {
        "uid": "1",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "operation": "CREATE",
        "namespace": "prod",
        "object": pod,
    }
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    answer = pods.handle(
        json.dumps(review).encode(), policy_of(site), lambda namespace: known or facts.Facts(namespace)
    )
    response = json.loads(answer.body)["response"]
    assert response["allowed"], response
    assert "warnings" not in response
    patch = json.loads(base64.b64decode(response.get("patch", base64.b64encode(b"[]"))))
    return jsonpatch.apply_patch(copy.deepcopy(pod), patch)


def meaning(pod: dict) -> dict:
    """What a pod means to Kubernetes, Multus and NCCL: order of variables and spelling of amounts do not matter."""
    containers = []
    for container in pod["spec"]["containers"]:
        names_set = [each["name"] for each in container.get("env", [])]
        assert len(names_set) == len(set(names_set))
        containers.append(
            container
            | {"env": {each["name"]: each.get("value", each.get("valueFrom")) for each in container.get("env", [])}}
            | {
                "resources": {
                    kind: {name: quantity.parse(text) for name, text in amounts.items()}
                    for kind, amounts in container["resources"].items()
                }
            }
        )
    annotations = dict(pod["metadata"].get("annotations", {}))
    annotations.pop(names.INJECTION, None)
    selected = networks.parse(annotations.pop(names.NETWORKS, ""), pod["metadata"]["namespace"])
    labels = {key: value for key, value in pod["metadata"].get("labels", {}).items() if key != names.FABRIC}
    return {
        "spec": pod["spec"] | {"containers": containers},
        "labels": labels,
        "annotations": annotations,
        "networks": selected,
    }


@pytest.mark.parametrize("site", SITES)
def test_the_labelled_job_is_admitted_as_its_handwritten_twin(site):
    given, twin = pod_of(load(site, "job")), pod_of(load(site, "handwritten"))
    result = admitted(site, given)
    assert meaning(result) == meaning(twin)
    assert meaning(given) != meaning(twin), "the job must lack what the webhook is to add"


@pytest.mark.parametrize("site", SITES)
def test_the_job_is_the_handwritten_one_less_its_network_parts_plus_one_label(site):
    job, twin = (json.loads(json.dumps(load(site, name))) for name in ("job", "handwritten"))
    (theirs,), (ours,) = twin["spec"]["tasks"], job["spec"]["tasks"]
    assert ours["template"].pop("metadata") == {"labels": {names.FABRIC: site.removeprefix("360-")}}
    assert set(theirs["template"].pop("metadata", {}).get("annotations", {})) <= {names.NETWORKS}
    (container,) = theirs["template"]["spec"]["containers"]
    assert all(each["name"].startswith(FABRIC_ENV) for each in container.pop("env"))
    for kind in ("requests", "limits"):
        for resource in RDMA:
            assert container["resources"][kind].pop(resource) == "1"
    assert job == twin


@pytest.mark.parametrize("site", SITES)
def test_both_jobs_are_gangs_of_one_by_the_pytorch_plugin(site):
    for name in ("job", "handwritten"):
        job = load(site, name)
        assert (job["apiVersion"], job["kind"]) == ("batch.volcano.sh/v1alpha1", "Job")
        assert "pytorch" in job["spec"]["plugins"]
        assert job["spec"]["minAvailable"] == job["spec"]["tasks"][0]["replicas"] == 1


@pytest.mark.parametrize("site", SITES)
def test_an_admitted_pod_admitted_again_stays_as_it_is(site):
    once = admitted(site, pod_of(load(site, "job")))
    assert admitted(site, once) == once


def test_handwritten_pods_under_the_label_keep_every_value_and_get_only_the_record():
    pod = pod_of(load("360-roce", "handwritten"))
    pod["metadata"]["labels"] = {names.FABRIC: "roce"}
    result = admitted("360-roce", pod)
    assert json.loads(result["metadata"]["annotations"].pop(names.INJECTION))["fabric"] == "roce"
    assert result == pod


def test_the_derived_roce_environment_names_exact_devices_and_no_gid_index():
    pod = pod_of(load("360-roce", "job"))
    pod["metadata"]["labels"][names.FABRIC] = "default"
    (container,) = meaning(admitted("360-roce", pod))["spec"]["containers"]
    assert container["env"] == {
        "NCCL_DEBUG": "INFO",
        "NCCL_NET_GDR_READ": "1",
        "NCCL_IB_HCA": "=mlx5_0,mlx5_1,mlx5_2,mlx5_3",
        "NCCL_IB_ADDR_RANGE": "192.168.0.0/16",
        "NCCL_SOCKET_IFNAME": "=eth0",
        "GLOO_SOCKET_IFNAME": "eth0",
        "TP_SOCKET_IFNAME": "eth0",
    }


def test_every_fabric_of_every_example_admits_its_job_on_a_cluster_that_has_its_networks():
    lans = {("prod", f"rdma-net-ipam-lan{number}"): None for number in range(2, 6)}
    known = facts.Facts("prod", {}, lans, frozenset({*RDMA, "nvidia.com/gpu"}))
    for site in SITES:
        for fabric in policy_of(site).document.fabrics:
            pod = pod_of(load(site, "job"))
            pod["metadata"]["labels"][names.FABRIC] = fabric
            (container,) = admitted(site, pod, known)["spec"]["containers"]
            assert set(RDMA) <= set(container["resources"]["limits"])
