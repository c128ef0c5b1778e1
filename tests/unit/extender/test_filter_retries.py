"""A filter that would refuse every node waits briefly: our watch may deliver an event later than kube-scheduler's."""

import asyncio
import json
import time

import extending
import pytest
from placing import LEAF, RESOURCES, node, policy

from extender import app, state
from railwright.serving import routes


@pytest.fixture
def cluster():
    return state.State(assume_seconds=30)


@pytest.fixture
def ask(cluster):
    """Send POST /scheduler/filter for a pod and the only node."""
    fabric_policy = policy(required=True, domains=[LEAF])
    verbs = extending.Extender(cluster, lambda: fabric_policy, clock=time.monotonic)
    (handle,) = [route.handle for route in app.build_routes(verbs.decider, None) if route.path == "/scheduler/filter"]
    limits = {"nvidia.com/gpu": "8", **dict.fromkeys(RESOURCES, "1")}
    pod = {
        "metadata": {"name": "p", "namespace": "train", "uid": "u", "labels": {"railwright.io/fabric": "roce"}},
        "spec": {"containers": [{"name": "c", "resources": {"requests": limits, "limits": limits}}]},
    }
    body = json.dumps({"Pod": pod, "Nodes": None, "NodeNames": ["only"]}).encode()

    async def asked():
        answer = handle(routes.Call(body, {}, {}, {}, ""))
        return json.loads((answer if isinstance(answer, routes.Reply) else await answer).body)["NodeNames"]

    return asked


async def shown_after(cluster, seconds, rails):
    await asyncio.sleep(seconds)
    cluster.cluster.upsert_node(node("only", "leaf-0", rails_each=rails))


async def test_a_pod_asked_about_a_moment_before_its_event_is_not_refused(cluster, ask):
    cluster.cluster.upsert_node(node("only", "leaf-0", rails_each=0))
    task = asyncio.create_task(shown_after(cluster, 0.08, 1))
    assert await ask() == ["only"]
    await task


async def test_a_node_refused_just_before_is_not_chosen(cluster, ask):
    cluster.cluster.upsert_node(node("only", "leaf-0", rails_each=0))
    assert await ask() == []
    task = asyncio.create_task(shown_after(cluster, 0.03, 1))
    assert await ask() == ["only"]
    await task


async def test_pods_that_fit_nowhere_delay_the_scheduler_only_a_few_times(cluster, ask):
    cluster.cluster.upsert_node(node("only", "leaf-0", rails_each=0))
    for _ in range(4):
        assert await ask() == []
    turns = []
    for _ in range(8):
        before = asyncio.get_running_loop().time()
        assert await ask() == []
        turns.append(asyncio.get_running_loop().time() - before >= app._RETRY_SECONDS)
    assert turns.count(False) >= 6, "most are answered at once when the looks are used up"
