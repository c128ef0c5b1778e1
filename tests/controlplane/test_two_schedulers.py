"""Volcano and kube-scheduler on the same nodes: a rail that one has given, the other does not give again."""

import pytest_asyncio
from plane import kube as kubes
from plane import site as sites


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def kube(plane):
    async with kubes.beside_volcano(plane) as running:
        yield running


async def nodes_of(plane, namespace: str, count: int, labels: str) -> list[str]:
    return [kubes.node_of(pod) for pod in await kubes.bound(plane.api, namespace, count, labels)]


def singles(count: int, **kinds) -> list[dict]:
    return [kubes.pod(f"single-{index}", labels={"of": "kube"}, **kinds) for index in range(count)]


async def place_singly(plane, namespace: str, pods: list[dict], labels: str) -> list[str]:
    """Their nodes. One after the other: only the watch shows us what kube-scheduler binds, a moment later."""
    placed = []
    for count, pod in enumerate(pods, 1):
        await kubes.create(plane.api, namespace, [pod])
        placed = await nodes_of(plane, namespace, count, labels)
    return placed


async def test_each_scheduler_leaves_alone_what_the_other_has_bound(plane, kube, nodes, namespace):
    # No GPUs: the rails alone keep them apart, and kube-scheduler leaves those to us.
    await kubes.make_leaves(nodes, a=3, b=5)
    first = await place_singly(plane, namespace, singles(2, gpus=0), "of=kube")
    await plane.api.create(kubes.volcano_job("gang", 4, gpus=0), namespace=namespace)
    gang = await nodes_of(plane, namespace, 4, f"{kubes.VOLCANO_JOB}=gang")
    late = [kubes.pod(f"late-{index}", gpus=0, labels={"of": "late"}) for index in range(2)]
    last = await place_singly(plane, namespace, late, "of=late")
    used = [*first, *gang, *last]
    assert len(set(used)) == 8, used


async def test_a_gang_and_single_pods_at_the_same_time_end_on_nodes_of_their_own(plane, kube, nodes, namespace):
    await kubes.make_leaves(nodes, a=3, b=6)
    await plane.api.create(kubes.volcano_job("gang", 6), namespace=namespace)
    await kubes.create(plane.api, namespace, singles(3))
    gang = await nodes_of(plane, namespace, 6, f"{kubes.VOLCANO_JOB}=gang")
    used = [*gang, *await nodes_of(plane, namespace, 3, "of=kube")]
    assert len(set(used)) == 9, used
    await sites.wait_metric(kube.site.extender, "railwright_assumed_pods", 0)
