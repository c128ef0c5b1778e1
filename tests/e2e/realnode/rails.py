"""The networks, policies and jobs of published deployments on a site; whereabouts gives addresses."""

import copy
import json
from collections.abc import Mapping, Sequence
from typing import Any

import yaml
from plane import manifests, plane, releases

from realnode import hardware, images, layout

EXAMPLES = releases.ROOT / "manifests" / "examples"
EXAMPLE = EXAMPLES / "360-roce"
NAMESPACE = "prod"
_OFF_RAILS = ("OMPI_MCA_btl_tcp_if_include", "OMPI_MCA_oob_tcp_if_include", "PRTE_MCA_prte_if_include")
# fabrics of other deployments, by the name that they have in the policy of a site
_FABRICS = {
    "vivo": ("vivo-roce", "roce"),
    "sriov-per-rail": ("sriov-8-rail", "sriov-per-rail"),
    "pvrdma-derived": ("pvrdma-mpi", "pvrdma-derived"),
}


async def install(running: plane.Plane, *, only: str = "") -> None:
    """Create the namespaces, or one of them, and their networks, unless they are there.

    Label every node with its switches.
    """
    for name in layout.NODES:
        await running.api.patch(
            "Node", name, {"metadata": {"labels": {manifests.LEAF: "leaf-0", manifests.SPINE: "spine-0"}}}
        )
    networks = list_networks(str(running.certificates.folder))
    for namespace in dict.fromkeys(network["metadata"]["namespace"] for network in networks):
        if namespace == (only or namespace) and await running.api.get_or_none("Namespace", namespace) is None:
            await running.make_namespace(namespace)
            for network in networks:
                if network["metadata"]["namespace"] == namespace:
                    await running.api.create(network)


def describe_policy(image: images.Image) -> str:
    """Return the policy of the example with more fabrics. Pods of two run preflight from our image: `checked` expects
    the MTU that the rails have, `oversized` a larger one. The others are of other deployments.
    """
    policy = yaml.safe_load((EXAMPLE / "policy.yaml").read_text())
    for name, mtu in (("checked", 9000), ("oversized", 9100)):
        preflight = {"image": image.name, "mtu": mtu}
        policy["fabrics"][name] = {**policy["fabrics"]["roce-derived"], "preflight": preflight}
    for name, (example, fabric) in _FABRICS.items():
        policy["fabrics"][name] = yaml.safe_load((EXAMPLES / example / "policy.yaml").read_text())["fabrics"][fabric]
    return json.dumps(policy)


def describe_soft_roce_policy(image: images.Image) -> str:
    """Return the policy with fabrics of resources that only virtual nodes offer.

    Rails cannot reach each other, and `soft-roce` says so. With `warn`, a pod starts even if preflight fails. `stated`
    names the devices, so that lint knows them. `off-rails` has the variables by which TCP of Open MPI stays off the
    rails, as `railwright explain` advises.
    """
    policy = json.loads(describe_policy(image))
    checked = policy["fabrics"]["checked"]
    soft = {
        **checked,
        "rails": [{**rail, "resource": hardware.name_soft_roce(k)} for k, rail in enumerate(checked["rails"])],
        "env": {**checked.get("env", {}), "NCCL_CROSS_NIC": "0"},
    }
    stated = [{**rail, "device": layout.name_device(k)} for k, rail in enumerate(checked["rails"])]
    warn = {"preflight": {**checked["preflight"], "onFailure": "warn"}}
    more = {
        "soft-roce": soft,
        "warn": {**soft, **warn},
        "off-rails": {**checked, "env": dict.fromkeys(_OFF_RAILS, "eth0")},
        "stated": {**checked, "rails": stated, "resolve": "always", **warn},
    }
    return json.dumps({**policy, "fabrics": {**policy["fabrics"], **more}})


def read_job(example: str) -> dict[str, Any]:
    """Return the labelled job of an example, without YAML's shared parts."""
    job = yaml.safe_load((EXAMPLES / example / "job.yaml").read_text())
    copied: dict[str, Any] = json.loads(json.dumps(job))
    return copied


def describe_job(
    name: str,
    fabric: str = "roce-derived",
    image: str = images.BUSYBOX,
    command: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return the example's job with a worker besides its master, on two nodes, with an image of the site.

    Its command and environment stay the example's unless others are named. Each test gives it another name, because
    Volcano may make no pods for a job whose name was used.
    """
    job = read_job("360-roce")
    job["metadata"]["name"] = name
    (master,) = job["spec"]["tasks"]
    job["metadata"]["labels"]["railwright.io/fabric"] = fabric
    (container,) = master["template"]["spec"]["containers"]
    container |= {"image": image} | ({"command": list(command)} if command else {})
    if env:
        container["env"] = [{"name": variable, "value": value} for variable, value in env.items()]
    master["template"]["spec"]["terminationGracePeriodSeconds"] = 0
    job["spec"] |= {"minAvailable": 2, "tasks": [master, {**copy.deepcopy(master), "name": "worker"}]}
    return job


def list_networks(credentials: str) -> list[dict[str, Any]]:
    """Return all NetworkAttachmentDefinitions; `credentials` is the folder of whereabouts' kubeconfig.

    macvlan on each rail's interface, with a plugin that writes the GIDs of its RDMA device, as a kernel would;
    host-device, which moves a virtual function into the pod like the sriov plugin, for each pool of virtual functions.
    """
    networks = []
    for rail in range(layout.RAILS):
        gids = {"type": "gids", "port": str(hardware.SYSFS / f"class/infiniband/{layout.name_device(rail)}/ports/1")}
        macvlan = {"type": "macvlan", "master": layout.name_interface(rail), "mode": "bridge", "mtu": 9000}
        plugins = [{**macvlan, "ipam": _ipam(f"192.168.{rail + 2}.0/24", credentials)}, gids]
        networks.append(_network(f"{NAMESPACE}/rdma-net-ipam-{layout.name_interface(rail)}", plugins))
        plugins = [{**macvlan, "ipam": _ipam(f"172.16.{rail}.0/24", credentials)}, gids]
        networks.append(_network(f"spiderpool/roce-rail{rail}", plugins))
    for index in range(layout.FUNCTIONS):
        device = {"type": "host-device", "ipam": _ipam(f"10.56.{index}.0/24", credentials)}
        network = _network(f"ai-training/ib{index}-sriov-rail", [device])
        network["metadata"]["annotations"] = {"k8s.v1.cni.cncf.io/resourceName": f"nvidia.com/ib{index}_sriov_vf"}
        networks.append(network)
    return networks


def _ipam(subnet: str, credentials: str) -> dict[str, Any]:
    kubeconfig = {"kubeconfig": f"{credentials}/whereabouts.kubeconfig"}
    return {"type": "whereabouts", "range": subnet, "kubernetes": kubeconfig}


def _network(full_name: str, plugins: list[dict[str, Any]]) -> dict[str, Any]:
    namespace, _, name = full_name.partition("/")
    config = {"config": json.dumps({"cniVersion": "0.3.1", "name": name, "plugins": plugins})}
    return manifests.build("NetworkAttachmentDefinition", name, {"namespace": namespace}, spec=config)
