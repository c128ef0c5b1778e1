"""Faults of the policy on the real API server: deleted, garbled, replaced in haste, different between replicas."""

import asyncio
import hashlib
import json
import time
from collections import Counter

import aiohttp
import pytest
import pytest_asyncio
from plane import api, waiting
from plane import site as sites

INJECTION, FABRIC = "railwright.io/injection", "railwright.io/fabric"
MEBIBYTE = 2**20 - 2048  # what the API server takes of a ConfigMap, less what is around it here


def policy(marker: str, *, more: str = "", resource: str = "x.y/hca") -> str:
    return f"""
apiVersion: railwright.io/v1alpha1
kind: FabricPolicy
fabrics:
  ib:
    transport: infiniband
    rails:
    - {{name: rail0, resource: {resource}, device: mlx5_{marker}{more}}}
    security: {{capabilities: [IPC_LOCK]}}
    env: {{MARKER: "{marker}"}}
"""


POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "labels": {FABRIC: "ib"}},
    "spec": {
        "schedulerName": "nobody",
        "containers": [{"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "1"}}}],
    },
}


def digest(text: str) -> str:
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def followed(created: dict) -> tuple[str, str, str]:
    """Which policy a pod names, and what it has of it: a value the policy gives, and one that is derived."""
    env = {each["name"]: each.get("value") for each in created["spec"]["containers"][0].get("env", [])}
    return json.loads(created["metadata"]["annotations"][INJECTION])["policy"], env["MARKER"], env["NCCL_IB_HCA"]


def of(marker: str) -> tuple[str, str, str]:
    return digest(policy(marker)), marker, f"=mlx5_{marker}"


@pytest_asyncio.fixture(loop_scope="session")
async def installed(namespace, site):
    await site.policy(policy("1"))
    await site.start_webhook()
    await site.register(namespace)
    return site


@pytest.fixture
def admitted(plane, namespace):
    async def admitted() -> tuple[str, str, str]:
        return followed(await plane.api.create(POD, namespace=namespace, dry_run=True))

    return admitted


async def ready(plane, server) -> bool:
    async with plane.session.get(f"{server.ops_url}/readyz") as answer:
        return answer.status == 200


async def told(plane) -> str:
    """What the Events on the ConfigMap say."""
    events = await plane.api.list("Event", sites.NAMESPACE)
    return "\n".join(each["message"] for each in events if each["involvedObject"]["name"] == sites.CONFIGMAP)


async def test_20_a_deleted_policy_stays_in_force_and_is_told(fault, plane, installed, admitted):
    assert await admitted() == of("1")
    await plane.api.delete("ConfigMap", sites.CONFIGMAP, sites.NAMESPACE)
    await sites.wait_metric(installed.webhook, "railwright_policy_valid", 0)
    for _ in range(20):
        assert await admitted() == of("1")
    assert await ready(plane, installed.webhook)

    async def said() -> bool:
        return "the policy was deleted" in await told(plane)

    await waiting.wait(said, describe="an Event that the policy was deleted")
    await installed.policy(policy("2"))
    await sites.wait_metric(installed.webhook, "railwright_policy_valid", 1)
    assert await admitted() == of("2")
    fault.saw("20 pods by the last good policy while there was none, ready, railwright_policy_valid 0, an Event; then the new")


GARBAGE = {  # what is told of each
    "broken YAML": ("fabrics: {ib: [", "line 1"),
    "a list for a map": ("apiVersion: railwright.io/v1alpha1\nkind: FabricPolicy\nfabrics: [ib]\n", "fabrics"),
    "an unknown key": (policy("3", more=", colour: red"), "fabrics.ib.rails[0].colour"),
    "an unknown transport": (policy("3").replace("infiniband", "omnipath"), "omnipath"),
    "a mebibyte of brackets": ("[" * MEBIBYTE, "line 1"),
    "a mebibyte of unknown fabrics": (
        "fabrics:\n" + "".join(f"  f{number:07}: 1\n" for number in range(MEBIBYTE // 16)),
        "more errors than these",
    ),
    "nothing": ("", "document"),
}


async def test_21_a_garbled_policy_is_refused_whole_and_told_with_its_place(fault, plane, installed, admitted):
    slowest = waited = 0.0
    for name, (text, place) in GARBAGE.items():
        began = time.monotonic()
        put = asyncio.create_task(installed.policy(text))

        async def said(place: str = place) -> bool:
            nonlocal waited
            asked = time.monotonic()
            assert await admitted() == of("1"), "pods meanwhile"
            waited = max(waited, time.monotonic() - asked)
            seen = await told(plane)
            assert place in seen, seen[-1000:]
            return True

        await waiting.wait(said, describe=f"an Event on the ConfigMap about {name}")
        await put
        slowest = max(slowest, time.monotonic() - began)
        assert await sites.metric(installed.webhook, "railwright_policy_valid") == 0, name
        assert await ready(plane, installed.webhook), name
    assert "the last good policy stays in force" in await told(plane)
    await installed.policy(policy("4"))
    await sites.wait_metric(installed.webhook, "railwright_policy_valid", 1)
    assert await admitted() == of("4")
    assert waited < 2, "reading it holds up nobody"
    fault.saw(
        f"{len(GARBAGE)} kinds, two of a mebibyte: each told by an Event with its line or field within {slowest:.1f} s; "
        f"pods meanwhile by the last good policy, the slowest after {waited:.1f} s; ready; the next good one in force"
    )


async def test_22_each_pod_follows_exactly_one_of_policies_replaced_within_100_ms(fault, plane, installed, admitted):
    seen: Counter[tuple[str, str, str]] = Counter()
    stop = asyncio.Event()

    async def create_pods() -> None:
        while not stop.is_set():
            seen[await admitted()] += 1

    apart = []
    markers = [str(number) for number in range(2, 22)]
    async with asyncio.TaskGroup() as tasks:
        for _ in range(4):
            tasks.create_task(create_pods())
        try:
            found = await plane.api.get("ConfigMap", sites.CONFIGMAP, sites.NAMESPACE)
            for pair in zip(markers[::2], markers[1::2], strict=True):
                before = seen.total()
                await waiting.wait(lambda before=before: seen.total() > before + 10, describe="10 pods")
                at = []
                for marker in pair:
                    found["data"] = {sites.KEY: policy(marker)}
                    found = await plane.api.replace(found)
                    at.append(time.monotonic())
                apart.append(at[1] - at[0])
            await waiting.wait(lambda: of(markers[-1]) in seen, describe="a pod by the last policy")
        finally:
            stop.set()
    assert set(seen) <= {of(marker) for marker in ["1", *markers]}, "a pod of two policies, or of none"
    assert len(seen) > len(markers) // 2
    close = [each for each in apart if each < 0.1]
    assert close, apart
    fault.saw(
        f"{seen.total()} pods while the policy was replaced {len(markers)} times, {len(close)} times twice within 100 ms "
        f"({min(close) * 1000:.0f} ms): {len(seen)} policies seen, each pod has the values of the one it names"
    )
