"""Faults between schedulers and the extender: whole nodes, unknown nodes, verbs that lie, a watch that is late."""

import asyncio
import copy
import json
import pathlib
import time

import api_stub
import placing
import pytest_asyncio
import shell
import yaml
from placing import LEAF, RESOURCES, SPINE

ROOT = pathlib.Path(__file__).parents[3]
WIRE = ROOT / "tests" / "data" / "wire"
MIB = 1 << 20
NODES, PODS = "/api/v1/nodes", "/api/v1/pods"
TAKEN = (200, {"errorMessage": ""})


def wire(name: str) -> dict:
    return json.loads((WIRE / f"{name}.json").read_bytes())


def node(index: int, devices: int = 1) -> dict:
    rails = dict.fromkeys(RESOURCES, str(devices))
    have = {"cpu": "128", "memory": "2Ti", "pods": "110", "nvidia.com/gpu": "16", **rails}
    metadata = {"name": f"gpu-{index}", "uid": f"node-{index}", "labels": {LEAF: f"leaf-{index // 4}", SPINE: "s"}}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": metadata,
        "status": {"allocatable": have, "capacity": have},
    }


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def extender(started, tmp_path_factory):
    """`await extender(*options)`: the extender on loopback, as (`ask(path, tree) -> (status, tree)`, its process).

    The same one for whoever gives the same options: these faults leave nothing behind.
    """
    callers: list[shell.Caller] = []
    running: dict[tuple[str, ...], tuple] = {}

    async def begin(*options: str):
        if options not in running:
            running[options] = await fresh(*options)
        return running[options]

    async def fresh(*options: str):
        tmp_path = tmp_path_factory.mktemp("extender")
        (tmp_path / "policy.yaml").write_text(yaml.safe_dump(placing.document()))
        items = {"apiVersion": "v1", "kind": "List", "items": [node(index) for index in range(8)]}
        (tmp_path / "snapshot.json").write_text(json.dumps(items))
        source = () if "--kubeconfig" in options else ("--snapshot", str(tmp_path / "snapshot.json"))
        policy = ("--policy", str(tmp_path / "policy.yaml"))
        process = await started("extender", "--plain-http", *source, *policy, *options)

        async def ask(path: str, tree: object) -> tuple[int, object]:
            caller = await process.open()
            callers.append(caller)
            answer = await caller.ask(tree if isinstance(tree, bytes) else json.dumps(tree).encode(), path=path)
            return answer.status, json.loads(answer.body)

        return ask, process

    yield begin
    for caller in callers:
        await caller.close()


async def test_37_whole_nodes_are_answered_or_refused_with_the_fix(fault, extender):
    ask, _ = await extender()
    many = wire("volcano-prioritize")
    nodes = [{**many["nodes"][0], "Name": f"n-{index}"} for index in range(5000)]
    body = json.dumps({"task": many["task"], "nodes": nodes}, separators=(",", ":")).encode()  # as Go does
    began = time.monotonic()
    status, answer = await ask("/volcano/prioritize", body)
    seconds = time.monotonic() - began
    assert status == 200, answer
    assert len(answer["nodeScore"]) == 5000
    fault.saw(f"Volcano's 5,000 nodes, {len(body) / MIB:.1f} MiB: answered in {seconds:.2f} s")
    whole = wire("kube-scheduler-filter") | {"NodeNames": None}
    items = ",".join(json.dumps({"metadata": {"name": f"n{index}"}, "k": "v" * 4000}) for index in range(5000))
    body = json.dumps(whole | {"Nodes": {"items": []}}).replace('"items": []', f'"items": [{items}]').encode()
    status, answer = await ask("/scheduler/filter", body)
    assert status == 413
    assert "nodeCacheCapable: true" in answer["error"]["reason"]
    fault.saw(f"kube-scheduler's, {len(body) / MIB:.1f} MiB: 413, set nodeCacheCapable: true")
    narrow, _ = await extender("--max-body", str(MIB))
    status, answer = await narrow("/scheduler/filter", body)
    assert status == 413
    assert str(MIB) in answer["error"]["reason"]
    assert (await narrow("/scheduler/filter", wire("kube-scheduler-filter")))[0] == 200
    fault.saw("above --max-body: 413 with the limit, and the next request is answered")


async def test_38_an_unknown_node_stays_with_score_zero(fault, extender):
    ask, process = await extender()
    known = ["gpu-0", "gpu-1"]
    offered = wire("kube-scheduler-filter") | {"NodeNames": [*known, "brand-new"]}
    status, filtered = await ask("/scheduler/filter", offered)
    assert status == 200
    assert set(filtered["NodeNames"]) == {*known, "brand-new"}
    assert filtered["Error"] == ""
    status, scored = await ask("/scheduler/prioritize", offered)
    by_host = {score["Host"]: score["Score"] for score in scored}
    assert by_host["brand-new"] == 0
    assert min(by_host[host] for host in known) > 0
    assert "Traceback" not in process.log
    fault.saw(f"1 of 3 nodes unknown: kept, score 0 beside {by_host['gpu-0']}")


async def test_41_the_job_ready_verb_is_not_offered(fault, extender):
    ask, _ = await extender()
    words = ("jobready", "jobReady", "job-ready", "ready", "jobenqueueable", "reclaimable", "preemptable")
    for word in words:
        status, answer = await ask(f"/volcano/{word}", {"job": {}})
        assert (status, answer["error"]["reason"]) == (404, "no such path")
    texts = [path.read_text() for path in (ROOT / "manifests").rglob("*.yaml")]
    assert any("extender.prioritizeVerb" in text for text in texts)
    assert not any("jobReadyVerb" in text for text in texts)
    fault.saw(f"{len(words)} spellings of verbs about jobs: 404; no manifest configures one")


async def test_48_assumed_pods_cover_a_late_watch(fault, extender, tmp_path):
    async with api_stub.World() as world:
        for index in range(8):
            world.put(NODES, node(index, devices=2 if index == 5 else 1))
        ask, process = await extender("--kubeconfig", api_stub.kubeconfig(tmp_path, world.port))
        announced, asking = wire("volcano-allocate"), wire("kube-scheduler-filter") | {"NodeNames": ["gpu-5", "gpu-6"]}
        asking["Pod"]["metadata"] |= {"name": "other", "uid": "other"}

        async def free() -> int:
            """Return 1 if gpu-5 has room for a pod by its score, beside gpu-6 which is free."""
            _, answer = await ask("/scheduler/prioritize", asking)
            score = {entry["Host"]: entry["Score"] for entry in answer}
            return int(score["gpu-5"] >= score["gpu-6"] > 0)

        def event(name: str) -> dict:
            tree = copy.deepcopy(announced)
            tree["task"] |= {"UID": name, "Name": name}
            tree["task"]["Pod"]["metadata"] |= {"uid": name, "name": name}
            return tree

        assert announced["task"]["NodeName"] == "gpu-5"
        assert await free() == 1
        for name in ("one", "two"):
            pending = event(name)["task"]["Pod"]
            world.put(PODS, pending | {"spec": pending["spec"] | {"nodeName": ""}})
            assert await ask("/volcano/allocate", event(name)) == TAKEN
        while await process.metric('railwright_assumed_pods{state="unseen"}'):  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.01)
        for name in ("one", "two"):
            await ask("/volcano/deallocate", event(name))
        world.held[PODS] = asyncio.Event()
        assert await ask("/volcano/allocate", event("one")) == TAKEN
        assert await free() == 1
        assert await ask("/volcano/allocate", event("two")) == TAKEN
        assert await free() == 0, "announced twice, not bound yet: nothing is left to give"
        for name in ("one", "two"):
            bound = copy.deepcopy(event(name)["task"]["Pod"])
            bound["spec"]["nodeName"] = "gpu-5"
            world.put(PODS, bound)  # the API server has it; our watch has not
        await asyncio.sleep(0.5)  # how late the watch is
        assert await process.metric("railwright_assumed_pods") == 2
        assert await free() == 0
        world.held.pop(PODS).set()
        began = time.monotonic()
        while await process.metric("railwright_assumed_pods"):
            assert time.monotonic() - began < 10
            await asyncio.sleep(0.01)  # between two looks
        assert await free() == 0, "seen bound: counted once, by the watch"
    fault.saw("2 of 2 places announced, the watch 0.5 s late: 0 assigned twice before, while and after it caught up")
