"""kube-scheduler and Volcano on the same nodes, with one extender: gangs of both at once, and gangs that change over.

Each node has a rail for one pod, and GPUs for several. kube-scheduler counts the rails itself, as the shipped example
says.
"""

import asyncio

import claimed
import devices
import pytest
import pytest_asyncio
import yaml
from plane import commands, gangs, manifests, volcano, waiting
from plane import site as sites

SIZE = 3
SMALL = {"gpus": 2}
CLASSES = (devices.GPU_CLASS, devices.NIC_CLASS)
TEMPLATES = {"low": (0, 1), "high": (2, 3)}  # rails of a pod: a node has room for one of each


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def both(plane):
    async with gangs.beside_volcano(plane, ignored=False) as running:
        yield running


class Kube:
    """Gangs of kube-scheduler: pods with a label."""

    name, asked = "kube-scheduler", "/scheduler/filter"

    async def create(self, both, namespace, gang, size=SIZE):
        pods = gangs.build_gang(gang, size, **SMALL)
        await gangs.release(both.plane.api, namespace, pods, seen_by=both.extender)

    async def bound(self, plane, namespace, gang, size=SIZE):
        return await gangs.bound(plane.api, namespace, size, f"{gangs.GROUP}={gang}", seconds=120)

    async def delete(self, plane, namespace, gang):
        await remove(plane, namespace, f"{gangs.GROUP}={gang}")


class Volcano:
    """Gangs of Volcano: its Jobs."""

    name, asked = "volcano", "/volcano/prioritize"

    async def create(self, both, namespace, gang, size=SIZE):
        await both.plane.api.create(gangs.volcano_job(gang, size, **SMALL), namespace=namespace)

    async def bound(self, plane, namespace, gang, size=SIZE):
        return await gangs.bound(plane.api, namespace, size, f"{gangs.VOLCANO_JOB}={gang}", seconds=120)

    async def delete(self, plane, namespace, gang):
        await plane.api.delete(manifests.VOLCANO_JOB, gang, namespace)
        await remove(plane, namespace, f"{gangs.VOLCANO_JOB}={gang}")


KUBE, VOLCANO = Kube(), Volcano()


async def remove(plane, namespace, labels):
    """Delete pods at once, and wait until they are gone."""

    async def are_gone():
        listed = await plane.api.list("Pod", namespace, labels=labels)
        for pod in listed:
            await plane.api.delete("Pod", pod["metadata"]["name"], namespace, grace=0)
        return not listed

    await waiting.wait(are_gone, describe=f"the pods with {labels} to be gone")


async def assert_each_has_a_node(plane, both, *gangs_of_pods):
    """Assert that no node has two of these pods, and that the extender counts each of them once."""
    taken = [gangs.node_of(pod) for pods in gangs_of_pods for pod in pods]
    assert len(set(taken)) == len(taken), sorted(taken)
    await sites.wait_metric(both.extender, "railwright_assumed_pods", 0)
    await gangs.wait_for_refusals(both, dict.fromkeys(taken, gangs.BUSY))


async def test_gangs_of_both_at_once_get_no_rail_twice(plane, both, nodes, namespace):
    await gangs.make_leaves(nodes, a=4, b=4, c=4)
    rows = [(KUBE, "k0"), (VOLCANO, "v0"), (KUBE, "k1"), (VOLCANO, "v1")]
    await asyncio.gather(*(scheduler.create(both, namespace, gang) for scheduler, gang in rows))
    placed = [await scheduler.bound(plane, namespace, gang) for scheduler, gang in rows]
    await assert_each_has_a_node(plane, both, *placed)

    await asyncio.gather(*(scheduler.create(both, namespace, "late", 1) for scheduler in (KUBE, VOLCANO)))
    await gangs.event(plane.api, namespace, "late-0", f"12 Insufficient {gangs.RAILS[0]}")
    for pod in ("late-0", "late-worker-0"):
        said = await commands.explain(plane, both.extender, namespace, pod)
        assert not said["complete"]
        rejections = {row["rejection"]["message"] for row in said["nodes"]}
        assert rejections == {gangs.BUSY.removeprefix("railwright: ")}, said
    await KUBE.delete(plane, namespace, "k0")
    late = [await scheduler.bound(plane, namespace, "late", 1) for scheduler in (KUBE, VOLCANO)]
    await assert_each_has_a_node(plane, both, *placed[1:], *late)


@pytest.mark.parametrize(("old", "new"), [(KUBE, VOLCANO), (VOLCANO, KUBE)], ids=["to volcano", "to kube-scheduler"])
async def test_a_gang_that_changes_over_gets_a_leaf_again(plane, both, nodes, namespace, old, new):
    await gangs.make_leaves(nodes, a=4, b=6)
    await old.create(both, namespace, "train", 4)
    before = await old.bound(plane, namespace, "train", 4)
    await new.create(both, namespace, "other", 3)
    other = await new.bound(plane, namespace, "other", 3)
    await old.delete(plane, namespace, "train")
    # with fewer than four nodes seen free in each leaf, the gang would be split
    await gangs.wait_for_refusals(both, {}, free=[*map(gangs.node_of, before)])
    await new.create(both, namespace, "train", 4)
    after = await new.bound(plane, namespace, "train", 4)
    assert set(gangs.leaves_of(before)) == set(gangs.leaves_of(after)) == {"a"}
    await assert_each_has_a_node(plane, both, after, other)
    said = await commands.explain(plane, both.extender, namespace, after[0]["metadata"]["name"])
    assert (said["gang_size"], said["leaves_planned"]) == (4, ["a in s0"]), said


@pytest.mark.parametrize(("old", "new"), [(KUBE, VOLCANO), (VOLCANO, KUBE)], ids=["to volcano", "to kube-scheduler"])
async def test_a_cluster_changes_over_while_the_extender_restarts(plane, both, nodes, namespace, old, new):
    names = ("g0", "g1", "g2")
    await gangs.make_leaves(nodes, a=SIZE, b=SIZE, c=SIZE, d=1)
    before = {}
    for gang in names:
        await old.create(both, namespace, gang)
        before[gang] = await old.bound(plane, namespace, gang)
    moved, killed = [], []

    async def kill(request):  # in the middle of the second gang that changes over
        if request.path == new.asked and len(moved) == 2 and not killed:
            killed.append(both.extender)
            both.proxy.backend = None
            await both.extender.kill()
            await both.start_extender()

    both.proxy.hook = kill
    for gang in names:
        moved.append(gang)
        await old.delete(plane, namespace, gang)
        await gangs.wait_for_refusals(both, {}, free=[*map(gangs.node_of, before[gang])])
        await new.create(both, namespace, gang)
        await new.bound(plane, namespace, gang)
    both.proxy.hook = None
    await waiting.wait(lambda: killed and both.extender not in killed, describe="the extender to restart in the middle")
    placed = [await new.bound(plane, namespace, gang) for gang in names]
    await assert_each_has_a_node(plane, both, *placed)
    whole = [pods for pods in placed if len(set(gangs.leaves_of(pods))) == 1]
    assert len(whole) >= 2, [gangs.leaves_of(pods) for pods in placed]


# --- claims ---------------------------------------------------------------------------------------------------


def build_claiming_pod(name, template, **spec):
    """Return a pod as the webhook leaves it: devices by claims, and a limit that makes schedulers ask the extender."""
    pod = gangs.pod(name, gpus=0, rails={}, labels={"railwright.io/fabric": claimed.FABRIC}, **spec)
    pod["spec"]["resourceClaims"] = [{"name": "railwright", "resourceClaimTemplateName": template}]
    resources = {"claims": [{"name": "railwright"}], "limits": {manifests.CALL: "0"}}
    pod["spec"]["containers"][0]["resources"] = resources
    return pod


@pytest.mark.usefixtures("device_classes")
async def test_gangs_of_both_at_once_get_no_device_of_a_claim_twice(plane, nodes, namespace, site):
    await gangs.make_leaves(nodes, None, a=SIZE, b=SIZE)
    await site.policy(yaml.safe_dump(claimed.build_document()))
    await site.start_extender()
    entry = gangs.entry(site.proxy.url, ignored=False, managed=[manifests.CALL])
    conf = volcano.conf(volcano.extender(f"{site.proxy.url}/volcano", managed=(manifests.CALL,)), claims=True)
    await asyncio.gather(plane.schedulers.volcano(conf=conf), plane.schedulers.kube(entry))
    for name, rails in TEMPLATES.items():
        await plane.api.create(claimed.build_template_tree(name, rails), namespace=namespace)
    kube_pods = [build_claiming_pod(f"k-{name}-{rank}", name) for name in TEMPLATES for rank in range(SIZE)]
    for pod in kube_pods:
        pod["metadata"]["labels"][gangs.GROUP] = pod["metadata"]["name"].rpartition("-")[0]
    jobs = [
        manifests.volcano_job(f"v-{name}", build_claiming_pod("unused", name), {"worker": SIZE}) for name in TEMPLATES
    ]
    await asyncio.gather(*(plane.api.create(tree, namespace=namespace) for tree in (*jobs, *kube_pods)))
    await gangs.bound(plane.api, namespace, 4 * SIZE, seconds=150)
    held = []
    for claim in await plane.api.list("ResourceClaim", namespace):
        held += [(row["pool"], row["device"]) for row in claim["status"]["allocation"]["devices"]["results"]]
    assert len(held) == 4 * SIZE * 4
    assert len(set(held)) == len(held), "a device is in two claims"
    for rail in claimed.RAILS:
        await sites.wait_metric(
            site.extender, "railwright_rail_devices", 2 * SIZE, fabric=claimed.FABRIC, rail=rail, state="busy"
        )
