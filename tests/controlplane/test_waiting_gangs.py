"""A gang that must wait takes nothing meanwhile, says why, and starts close together when there is room."""

import asyncio
import re

from plane import site as sites
from plane import training, waiting


async def hold(plane, namespace: str, names: list[str], **holders: dict) -> None:
    made = [training.holder(name, **holders) for name in names]
    await asyncio.gather(*(plane.api.create(tree, namespace=namespace) for tree in made))

    async def is_held():
        pods = await plane.api.list("Pod", namespace, fields="status.phase=Running")
        return {f"on-{name}" for name in names} <= {pod["metadata"]["name"] for pod in pods}

    await waiting.wait(is_held, describe=f"pods on {names} to run")


async def release(plane, namespace: str, names: list[str]) -> None:
    await asyncio.gather(*(plane.api.delete("Pod", f"on-{name}", namespace, grace=0) for name in names))


async def conditions(plane, namespace: str, count: int) -> dict[str, str]:
    """Return Volcano's reason for each waiting pod; {} until `count` pods have one."""
    messages = {}
    for pod in await training.pods(plane.api, namespace, "waits"):
        assert "nodeName" not in pod["spec"]
        said = [condition for condition in pod["status"].get("conditions", ()) if condition["type"] == "PodScheduled"]
        messages.update(
            (pod["metadata"]["name"], condition["message"]) for condition in said if condition["status"] == "False"
        )
    return messages if len(messages) == count else {}


async def test_a_waiting_gang_holds_nothing_and_starts_in_one_leaf(
    plane, nodes, namespace, site, schedulers, extender_proxy
):
    a, b, c = await training.make_leaves(nodes, a=4, b=4, c=4)
    held = [*a[1:], *b[2:], *c]  # three nodes are free, in two leaves
    await hold(plane, namespace, held)
    conf = training.conf(extender_proxy.url, without=("overcommit",), httpTimeout="60s")
    extender = await training.install(plane, site, extender_proxy, training.policy(), conf)

    await plane.api.create(training.job("waits", 4), namespace=namespace)
    words = await training.unschedulable(plane.api, namespace, "waits")
    assert "4 tasks in gang unschedulable" in words, words
    messages = await waiting.wait(lambda: conditions(plane, namespace, 4), describe="conditions of all four pods")
    without_room = messages.pop("waits-worker-3")  # Volcano names any one of the resources that are missing
    assert re.search(r"Insufficient nvidia\.com/(gpu|mlx5_\d)\b", without_room), without_room
    for name, message in messages.items():  # each has a node it could have, and none of them takes it
        assert f"{namespace}/{name} can possibly be assigned to" in message, message
    assert await sites.metric(extender, "railwright_extender_requests_total", path="/volcano/deallocate")
    await sites.wait_metric(extender, "railwright_assumed_pods", 0)

    # What it was tried on is free for whoever fits.
    await plane.api.create(training.job("passes", 2), namespace=namespace)
    passing = await training.running(plane.api, namespace, "passes", 2)
    assert training.leaves_of(passing) == ["b"]
    await sites.wait_metric(extender, "railwright_assumed_pods", 0)
    assert not any("nodeName" in pod["spec"] for pod in await training.pods(plane.api, namespace, "waits"))

    # Room for seven comes between two sessions: Volcano waits for this very answer.
    freed = asyncio.Event()

    async def between_sessions(request):
        if request.path == "/volcano/session-close" and not freed.is_set():
            for names in (a[1:], c[:3]):  # should Volcano see only part of it, that is too little for four
                await release(plane, namespace, names)
            freed.set()

    extender_proxy.hook = between_sessions
    pods = await training.running(plane.api, namespace, "waits", 4)
    assert training.leaves_of(pods) == ["a"]
    await sites.wait_metric(extender, "railwright_assumed_pods", 0)


async def test_a_gang_starts_in_the_leaf_that_is_free_at_last(
    plane, nodes, namespace, site, schedulers, extender_proxy
):
    """Volcano tries it in every session, on what is idle first, and commits none of it until all of it is."""
    early, late = ["a-00", "b-00"], [f"c-{number:02}" for number in range(4)]
    await training.make_leaves(nodes, a=1, b=1, c=4)
    await hold(plane, namespace, [*early, *late], annotations={training.LINGERS: "true"})
    conf = training.conf(extender_proxy.url, without=("overcommit",), httpTimeout="60s")
    extender = await training.install(plane, site, extender_proxy, training.policy(), conf)
    leaving = [await plane.api.get("Pod", f"on-{name}", namespace) for name in (*early, *late)]
    await asyncio.gather(*(plane.api.delete("Pod", pod["metadata"]["name"], namespace) for pod in leaving))

    await plane.api.create(training.job("waits", 4), namespace=namespace)
    await training.let_go(plane.api, leaving[:2])
    await sites.wait_metric(extender, "railwright_assumed_pods", 2)  # announced, and never committed
    await plane.schedulers.volcano_session()
    assert not any("nodeName" in pod["spec"] for pod in await training.pods(plane.api, namespace, "waits"))

    gone = asyncio.Event()

    async def between_sessions(request):
        if request.path == "/volcano/session-close" and not gone.is_set():
            await training.let_go(plane.api, leaving[2:])
            gone.set()

    extender_proxy.hook = between_sessions
    pods = await training.running(plane.api, namespace, "waits", 4)
    assert training.leaves_of(pods) == ["c"], [pod["spec"]["nodeName"] for pod in pods]
    await sites.wait_metric(extender, "railwright_assumed_pods", 0)


async def test_our_predicate_names_the_busy_rail(plane, nodes, namespace, site, schedulers, extender_proxy):
    """They ask for GPUs alone, so that the rails are the policy's and nobody but us can miss them."""
    names = await training.make_leaf(nodes, "a", 2)
    await hold(plane, namespace, names, takes={training.RAILS[1]: "1"})
    conf = training.conf(extender_proxy.url, managed=(training.GPU,), predicateVerb="predicate")
    await training.install(plane, site, extender_proxy, training.policy(rails="required"), conf)
    await plane.api.create(training.job("waits", 2, takes={training.GPU: "8"}), namespace=namespace)
    sentence = f"railwright: rail1 is busy: 0 of 1 {training.RAILS[1]} free, 1 needed"

    async def read_condition():
        listed = await training.pods(plane.api, namespace, "waits")
        conditions = [condition for pod in listed for condition in pod["status"].get("conditions", ())]
        return any(sentence in condition.get("message", "") for condition in conditions)

    await waiting.wait(read_condition, describe="a pod's condition with our sentence", seconds=60)
    assert sentence in await training.unschedulable(plane.api, namespace, "waits")
    await release(plane, namespace, names)
    await training.running(plane.api, namespace, "waits", 2)
