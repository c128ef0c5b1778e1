"""The seed jobs without their network parts, admitted, mean what their users wrote by hand."""

import copy

import admitting
import pytest
import yaml

from fabric import networks, quantity


def template(row: str, source: str) -> dict:
    manifest = yaml.safe_load((admitting.EXAMPLES / row / f"{source}.yaml").read_text())
    (task,) = manifest["spec"]["tasks"]
    tree = copy.deepcopy(task["template"])
    tree.setdefault("metadata", {})
    tree["metadata"] |= {"name": "rdma-test-master-0", "namespace": "prod"}
    return tree


def meaning(tree: dict) -> dict:
    (container,) = tree["spec"]["containers"]
    rest = {key: value for key, value in container.items() if key not in {"env", "resources"}}
    selected = tree["metadata"].get("annotations", {}).get("k8s.v1.cni.cncf.io/networks", "")
    return {
        **rest,
        "spec": {key: value for key, value in tree["spec"].items() if key != "containers"},
        "env": {each["name"]: each["value"] for each in container["env"]},
        "resources": {
            part: {name: quantity.parse(text) for name, text in container["resources"][part].items()}
            for part in ("requests", "limits")
        },
        "networks": networks.parse(selected, "prod"),
        "annotations": {
            key: value
            for key, value in tree["metadata"].get("annotations", {}).items()
            if not key.startswith("railwright.io/") and key != "k8s.v1.cni.cncf.io/networks"
        },
    }


@pytest.mark.parametrize("row", ["360-roce", "360-infiniband"])
def test_the_labelled_job_is_admitted_as_its_users_wrote_it_by_hand(row):
    by = admitting.policy((admitting.EXAMPLES / row / "policy.yaml").read_text())
    tree = template(row, "job")
    assert "env" not in tree["spec"]["containers"][0]
    assert "annotations" not in tree["metadata"]
    assert meaning(admitting.admitted(tree, by)) == meaning(template(row, "handwritten"))


@pytest.mark.parametrize("row", ["360-roce", "360-infiniband"])
def test_the_job_is_the_hand_written_one_without_its_network_parts_and_with_one_label(row):
    ours, theirs = template(row, "job"), template(row, "handwritten")
    assert list(ours["metadata"].pop("labels")) == ["railwright.io/fabric"]
    theirs["metadata"].pop("annotations", None)
    (container,) = theirs["spec"]["containers"]
    del container["env"]
    for part in ("requests", "limits"):
        container["resources"][part] = {"nvidia.com/gpu": "8"}
    assert ours == theirs


def test_the_recommended_fabric_derives_what_an_expert_would_write():
    by = admitting.policy((admitting.EXAMPLES / "360-roce" / "policy.yaml").read_text())
    tree = template("360-roce", "job")
    tree["metadata"]["labels"]["railwright.io/fabric"] = "default"
    admitted = admitting.admitted(tree, by)
    assert admitting.env(admitted) == {
        "NCCL_NET_GDR_READ": "1",
        "NCCL_SOCKET_IFNAME": "=eth0",
        "GLOO_SOCKET_IFNAME": "eth0",
        "TP_SOCKET_IFNAME": "eth0",
        "NCCL_DEBUG": "INFO",
        "NCCL_IB_HCA": "=mlx5_0,mlx5_1,mlx5_2,mlx5_3",
        "NCCL_IB_ADDR_RANGE": "192.168.0.0/16",
    }
