"""Faults of our own processes: replicas that die, hang or restart under load; an extender that does not answer."""

import asyncio
import json
import os
import signal
import time

import aiohttp
import pytest
import pytest_asyncio
from plane import api, gangs, load, spread, waiting
from plane import site as sites

LABEL = "railwright.io/fabric"
DRAIN = 2.0  # seconds; 10 in the manifests


class Webhooks:
    """The replicas behind one port that the API server calls."""

    def __init__(self, plane, site, behind: spread.Spread) -> None:
        self.plane, self.site, self.behind = plane, site, behind

    async def start(self):
        server = await self.site.start_webhook(f"--drain-seconds={DRAIN}")
        self.behind.members.append(server)
        await waiting.wait(lambda: server in self.behind.ready, describe="the new replica to be among the ready ones")
        return server

    async def stop(self, server) -> int:
        code = await server.stop()
        self.behind.members.remove(server)
        return code

    def load(self, namespace: str, per_second: int = load.PER_SECOND) -> load.Load:
        return load.Load(self.plane.api, namespace, per_second=per_second)


@pytest_asyncio.fixture(loop_scope="session")
async def webhooks(plane, namespace, site):
    """Yield two replicas, in force in the namespace."""
    await site.policy(load.POLICY)
    async with spread.Spread(plane.session) as behind:
        made = Webhooks(plane, site, behind)
        await asyncio.gather(made.start(), made.start())
        await plane.register_webhook(behind.port, namespaces=[namespace])
        yield made
        await plane.unregister_webhook(namespaces=[namespace])
        for server in behind.members:
            await server.stop()


async def test_01_one_of_two_webhooks_is_killed_under_load(fault, webhooks, namespace):
    killed = webhooks.behind.members[0]
    async with webhooks.load(namespace) as running:
        await waiting.wait(lambda: running.created > 200, describe="200 creates")
        at = time.monotonic()
        await killed.kill()
        webhooks.behind.members.remove(killed)
        before = running.created
        await waiting.wait(lambda: running.created > before + 400, describe="400 more creates")
    last = max((when for when, _ in running.failures), default=at) - at
    assert (running.lost, running.uninjected) == (0, 0), running.failures[:3]
    assert last < 2.0, running.failures[-3:]
    rate = running.created / running.seconds
    fault.saw(
        f"{running.created} creates at {rate:.0f}/s, {len(running.failures)} of them failed once and passed when tried "
        f"again, the last {last:.1f} s after the kill; 0 lost, 0 uninjected"
    )


async def test_02_both_webhooks_are_restarted_under_load(fault, webhooks, namespace):
    old = list(webhooks.behind.members)
    async with webhooks.load(namespace) as running:
        for server in old:
            await webhooks.start()
            assert await webhooks.stop(server) == 0
        before = running.created
        await waiting.wait(lambda: running.created > before + 100, describe="100 creates by the new replicas")
    assert (running.failures, running.lost, running.uninjected) == ([], 0, 0)
    for server in old:
        log = server.process.output()
        assert log.index('"draining"') < log.index('"not ready"', log.index('"draining"')), log[-500:]
    rate = running.created / running.seconds
    fault.saw(
        f"{running.created} creates at {rate:.0f}/s while both were replaced, 0 failed, 0 uninjected, "
        f"the slowest {running.slowest * 1000:.0f} ms; each was not ready, kept answering for {DRAIN:.0f} s, and ended"
    )


async def test_05_a_hanging_webhook_is_given_up(fault, plane, webhooks, namespace):
    for server in webhooks.behind.members[1:]:
        await webhooks.stop(server)
    [only] = webhooks.behind.members
    assert load.injected(await plane.api.create(load.POD, namespace=namespace, dry_run=True))
    os.kill(only.process.pid, signal.SIGSTOP)
    try:
        began = time.monotonic()
        with pytest.raises(api.ApiError, match=r"pods\.railwright\.io") as refused:
            await plane.api.create(load.POD, namespace=namespace, dry_run=True)
        seconds = time.monotonic() - began
        with pytest.raises(TimeoutError):  # as the kubelet's probe would, and restart it
            await plane.session.get(f"{only.ops_url}/livez", timeout=aiohttp.ClientTimeout(1))
        unlabelled = {**load.POD, "metadata": {"generateName": "plain-"}}
        plain = await plane.api.create(unlabelled, namespace=namespace, dry_run=True)
    finally:
        os.kill(only.process.pid, signal.SIGCONT)
    assert 3 < seconds < 8, refused.value
    assert not load.injected(plain)
    began = time.monotonic()
    await waiting.wait(lambda: bool(webhooks.behind.ready), describe="readiness")
    assert load.injected(await plane.api.create(load.POD, namespace=namespace, dry_run=True))
    after = time.monotonic() - began
    fault.saw(
        f"rejected after {seconds:.1f} s with the webhook's name (timeoutSeconds 5); liveness got no answer; pods that "
        f"did not opt in were created; {after:.1f} s after SIGCONT an opted-in pod was created"
    )


@pytest.mark.parametrize("ignorable", [False, True], ids=["not ignorable", "ignorable"])
async def test_40_a_slow_extender_leaks_nothing(fault, plane, nodes, namespace, ignorable):
    async with gangs.running(plane, ignorable=ignorable) as running:
        await gangs.make_leaves(nodes, a=1)
        extender = running.extender
        os.kill(extender.process.pid, signal.SIGSTOP)
        try:
            await gangs.create(plane.api, namespace, [gangs.pod("asked-0", gpus=0)])
            if ignorable:
                await gangs.bound(plane.api, namespace, 1)
                fault.saw("ignorable: bound without the extender after the scheduler's 5 s")
            else:
                message = await gangs.event(plane.api, namespace, "asked-0", "/scheduler/filter")
                assert "deadline exceeded" in message or "Timeout" in message, message
                fault.saw("not ignorable: the pod waits, and its Event names the filter and the deadline")
        finally:
            os.kill(extender.process.pid, signal.SIGCONT)
        if not ignorable:
            await gangs.create(plane.api, namespace, [gangs.pod("next-0", gpus=0, rails={})])  # an event tries it again
            await plane.api.delete("Pod", "next-0", namespace, grace=0)
            await gangs.bound(plane.api, namespace, 1)
        await sites.wait_metric(extender, "railwright_assumed_pods", 0)


async def test_49_an_assumed_pod_expires_and_a_late_binding_counts(fault, plane, nodes, namespace, site):
    await site.policy(gangs.POLICY)
    await gangs.make_leaves(nodes, a=2)
    extender = await site.start_extender("--assume-seconds=1")
    made_pod = gangs.pod("late-0")
    made_pod["spec"]["schedulerName"] = "nobody"
    pod = await plane.api.create(made_pod, namespace=namespace)
    uid = pod["metadata"]["uid"]

    async def ask(path: str, tree: dict) -> dict:
        async with plane.session.post(f"http://127.0.0.1:{extender.port}{path}", json=tree) as answer:
            assert answer.status == 200, await answer.text()
            return json.loads(await answer.read())

    async def is_free() -> bool:
        """Return whether the node ranks as high for another pod as a free one."""
        other = {**pod, "metadata": {**pod["metadata"], "name": "other-0", "uid": "other"}}
        scores = await ask("/scheduler/prioritize", {"Pod": other, "NodeNames": ["a-00", "a-01"]})
        return len({row["Score"] for row in scores}) == 1

    assert await is_free()
    scalars = {"ScalarResources": {"nvidia.com/gpu": 8000, **dict.fromkeys(gangs.RAILS, 1000)}}
    task = {"UID": uid, "Name": "late-0", "Namespace": namespace, "Job": "", "NodeName": "a-00", "Status": 2}

    async def is_held() -> bool:
        """Announce the pod, as Volcano does in each session, and return whether it counts there."""
        answer = await ask("/volcano/allocate", {"task": {**task, "InitResreq": scalars, "Pod": pod}})
        return not answer["errorMessage"] and not await is_free()

    await waiting.wait(is_held, describe="the announced pod to count on its node")
    began = time.monotonic()
    await sites.wait_metric(extender, "railwright_assumed_pods", 0)
    seconds = time.monotonic() - began
    assert await is_free()
    target = {"apiVersion": "v1", "kind": "Node", "name": "a-00"}
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "late-0"}, "target": target}
    path = f"/api/v1/namespaces/{namespace}/pods/late-0/binding"
    await plane.api.request("POST", path, body=binding)

    async def is_taken() -> bool:
        return not await is_free()

    await waiting.wait(is_taken, describe="the late binding to count")
    fault.saw(f"ranked as free again after {seconds:.1f} s (--assume-seconds 1); its later binding counts on the node")
