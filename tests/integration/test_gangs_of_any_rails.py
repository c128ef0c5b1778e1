"""Gangs whose pods claim any NICs of a node instead of named rails: other pods' claims decide the leaf of the gang."""

import asyncio

import devices
import pytest
import pytest_asyncio
from plane import claim_gangs, commands, gangs, manifests, volcano, waiting

SIZE = 6
POD = {"gpus": 2, "rails": {}, "fabric": "any"}
NIC_CLASS = devices.build_class("dranet", 'device.driver == "dra.net" && has(device.attributes["dra.net"].rdmaDevice)')
CLASSES = (devices.GPU_CLASS, NIC_CLASS)
PLACEMENT = {"domains": [gangs.LEAF, gangs.SPINE]}
POLICY = manifests.policy({"any": manifests.fabric_of_claims(railsPerPod="proportional", placement=PLACEMENT)})
# NICs of each node that other pods hold, with their GPUs. By its nodes, leaf a is the smallest that has eight places;
# by what is free, leaf b is the only one that has six: four, one and one.
HELD = {"a-00": 2, "a-01": 2, "b-00": 0, "b-01": 3, "b-02": 3, "c-00": 0}


@pytest_asyncio.fixture(loop_scope="session")
async def leaves(plane, nodes, namespace, device_classes):
    """Yield the nodes of HELD, with the pods that hold devices there."""
    await gangs.make_leaves(nodes, None, a=2, b=3, c=1)
    for name, count in HELD.items():
        if count:
            await hold(plane, namespace, name, count)
    await gangs.wait_bound(plane.api, namespace, sum(map(bool, HELD.values())), seconds=120)
    yield
    await plane.remove_pods(namespace)


async def hold(plane, namespace, node, count):
    """Create a pod that holds NICs of a node and the GPUs nearest to them."""
    requests = [
        {"name": f"{kind}{pair}-{number}", "exactly": {"deviceClassName": device_class}}
        for pair in range(count)
        for kind, device_class, amount in (("nic", "dranet", 1), ("gpu", "gpu.nvidia.com", 2))
        for number in range(amount)
    ]
    pairs = [
        {"requests": [f"nic{pair}-0", f"gpu{pair}-0", f"gpu{pair}-1"],
         "matchAttribute": "resource.kubernetes.io/pcieRoot"}
        for pair in range(count)
    ]  # fmt: skip
    name, claim = f"on-{node}", {"spec": {"devices": {"requests": requests, "constraints": pairs}}}
    await plane.api.create(manifests.build("ResourceClaimTemplate", name, spec=claim), namespace=namespace)
    pod = manifests.pod(
        name,
        limits={},
        container={"resources": {"claims": [{"name": "devices"}]}},
        resourceClaims=[{"name": "devices", "resourceClaimTemplateName": name}],
        nodeSelector={"kubernetes.io/hostname": node},
        terminationGracePeriodSeconds=0,
    )
    await plane.api.create(pod, namespace=namespace)


@pytest_asyncio.fixture(loop_scope="session")
async def called_extender(plane, leaves, installed):
    """Configure both schedulers to call the extender for pods with claims only. Return it."""
    extender = await installed.install_extender(POLICY)
    entry = gangs.entry(installed.proxy.url, managed=[manifests.CALL])
    conf = volcano.conf(volcano.extender(f"{installed.proxy.url}/volcano", managed=(manifests.CALL,)), claims=True)
    await asyncio.gather(plane.schedulers.volcano(conf), plane.schedulers.kube(entry))
    return extender


async def run_volcano_job(plane, namespace, extender):
    """Run a gang as a Volcano Job; return its pods."""
    await plane.api.create(gangs.volcano_job("gang", SIZE, **POD), namespace=namespace)
    return await gangs.wait_bound(plane.api, namespace, SIZE, f"{gangs.VOLCANO_JOB}=gang")


async def run_pods(plane, namespace, extender):
    """Run a gang by kube-scheduler, each pod once the extender knows the node of the previous one; return its pods.

    kube-scheduler does not announce bindings, and its requests do not show how many pods a node has taken.
    """

    async def is_seen(rank) -> bool:
        said = await commands.explain(plane, extender, namespace, f"gang-{rank}")
        assert said["node"], said
        assert said["devices"], said
        return True

    for rank in range(SIZE):
        labels = {gangs.GROUP: "gang", "name": f"gang-{rank}"}
        pod = gangs.pod(labels["name"], labels=labels, schedulingGates=[{"name": "test/turn"}], **POD)
        await plane.api.create(pod, namespace=namespace)
    for rank in range(SIZE):
        await plane.api.patch("Pod", f"gang-{rank}", {"spec": {"schedulingGates": None}}, namespace)
        await gangs.wait_for_node(plane.api, namespace, f"gang-{rank}")
        await waiting.wait(lambda rank=rank: is_seen(rank), describe=f"the extender to see where gang-{rank} is")
    return await gangs.wait_bound(plane.api, namespace, SIZE, f"{gangs.GROUP}=gang")


@pytest.mark.parametrize("run", [run_volcano_job, run_pods], ids=["volcano", "kube-scheduler"])
async def test_a_gang_gets_the_leaf_where_claims_of_other_pods_leave_devices_free(
    plane, namespace, called_extender, run
):
    pods = await run(plane, namespace, called_extender)
    assert sorted(map(gangs.get_node, pods)) == ["b-00"] * 4 + ["b-01", "b-02"]
    devices_of = await claim_gangs.list_devices(plane.api, namespace)
    nics = {}
    for pod in pods:
        held = devices_of[pod["metadata"]["name"]]
        (nic,) = [device for device in held if device.startswith("pci")]
        assert (len(held), len({devices.ROOT_OF[device] for device in held})) == (3, 1), held
        nics.setdefault(gangs.get_node(pod), set()).add(nic)
    assert len(nics["b-00"]) == len(devices.ROOTS)  # the pods of one gang have four different rails there
