"""The rails of 360 Smart Cloud on a site: macvlan networks with addresses by whereabouts, where its job runs."""

import copy
import json
from typing import Any

import yaml
from plane import plane, releases

from realnode import hardware, images, layout

EXAMPLE = releases.ROOT / "manifests" / "examples" / "360-roce"
NAMESPACE = "prod"
LEAF, SPINE = "fabric.topograph.run/tier-0", "fabric.topograph.run/tier-1"


async def install(running: plane.Plane) -> None:
    """Create the namespace and its networks, unless they are there, and label every node with its switches."""
    for name in layout.NODES:
        await running.api.patch("Node", name, {"metadata": {"labels": {LEAF: "leaf-0", SPINE: "spine-0"}}})
    if await running.api.get_or_none("Namespace", NAMESPACE) is None:
        await running.make_namespace(NAMESPACE)
        for rail in range(layout.RAILS):
            await running.api.create(describe_network(rail, str(running.certificates.folder)))


def describe_policy(image: images.Image) -> str:
    """Return the policy of the example with fabrics more. Pods of two run preflight from our image:
    `checked` expects the MTU that the rails have, `oversized` a larger one. A third, `launched`, gives ranks that ssh
    starts their variables by a file.
    """
    policy = yaml.safe_load((EXAMPLE / "policy.yaml").read_text())
    for name, mtu in (("checked", 9000), ("oversized", 9100)):
        preflight = {"enabled": True, "image": image.name, "mtu": mtu}
        policy["fabrics"][name] = {**policy["fabrics"]["roce-derived"], "preflight": preflight}
    derived = policy["fabrics"]["roce-derived"]
    policy["fabrics"]["launched"] = {**derived, "nccl": {**derived["nccl"], "delivery": "both"}}
    return json.dumps(policy)


def describe_job() -> dict[str, Any]:
    """Return the example's job with a worker beside its master, a node for each, and an image that is there."""
    job: dict[str, Any] = copy.deepcopy(yaml.safe_load((EXAMPLE / "job.yaml").read_text()))
    (master,) = job["spec"]["tasks"]
    master["template"]["metadata"]["labels"]["railwright.io/fabric"] = "roce-derived"
    (container,) = master["template"]["spec"]["containers"]
    container |= {"image": images.BUSYBOX}
    master["template"]["spec"]["terminationGracePeriodSeconds"] = 0
    job["spec"] |= {"minAvailable": 2, "tasks": [master, {**copy.deepcopy(master), "name": "worker"}]}
    return job


def describe_network(rail: int, credentials: str) -> dict[str, Any]:
    """Return the NetworkAttachmentDefinition of a rail; `credentials` is the folder of whereabouts' kubeconfig."""
    name = f"rdma-net-ipam-{layout.name_interface(rail)}"
    kubeconfig = {"kubeconfig": f"{credentials}/whereabouts.kubeconfig"}
    macvlan = {
        "type": "macvlan",
        "master": layout.name_interface(rail),
        "mode": "bridge",
        "mtu": 9000,
        "ipam": {"type": "whereabouts", "range": f"192.168.{rail + 2}.0/24", "kubernetes": kubeconfig},
    }
    gids = {"type": "gids", "port": str(hardware.SYSFS / f"class/infiniband/{layout.name_device(rail)}/ports/1")}
    return {
        "apiVersion": "k8s.cni.cncf.io/v1",
        "kind": "NetworkAttachmentDefinition",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"config": json.dumps({"cniVersion": "0.3.1", "name": name, "plugins": [macvlan, gids]})},
    }
