"""Faults of the policy on the real API server: deleted, garbled, replaced quickly, different between replicas."""

import asyncio
import hashlib
import json
import time
from collections import Counter

import pytest
import pytest_asyncio
from plane import manifests, waiting
from plane import site as sites

INJECTION, FABRIC = "railwright.io/injection", "railwright.io/fabric"
MEBIBYTE = 2**20 - 2048  # what the API server takes of a ConfigMap, less what is around it here


def policy(marker: str, *, resource: str = "x.y/hca", **rail: str) -> str:
    rails = [{"name": "rail0", "resource": resource, "device": f"mlx5_{marker}", **rail}]
    keys = {"security": {"capabilities": ["IPC_LOCK"]}, "env": {"MARKER": marker}}
    return manifests.policy({"ib": manifests.fabric(rails, **keys)})


POD = manifests.pod("p", "ib", schedulerName="nobody")


def digest(text: str) -> str:
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def read_followed(created: dict) -> tuple[str, str, str]:
    """Return the policy in a pod's record, a literal of the policy in its environment, and a derived value."""
    env = {entry["name"]: entry.get("value") for entry in created["spec"]["containers"][0].get("env", [])}
    return json.loads(created["metadata"]["annotations"][INJECTION])["policy"], env["MARKER"], env["NCCL_IB_HCA"]


def expect(marker: str) -> tuple[str, str, str]:
    return digest(policy(marker)), marker, f"=mlx5_{marker}"


@pytest_asyncio.fixture(loop_scope="session")
async def installed(namespace, site):
    return await site.install(policy("1"), namespace)


@pytest.fixture
def admitted(plane, namespace):
    async def create_and_read() -> tuple[str, str, str]:
        return read_followed(await plane.api.create(POD, namespace=namespace, dry_run=True))

    return create_and_read


async def ready(plane, server) -> bool:
    async with plane.session.get(f"{server.ops_url}/readyz") as answer:
        return answer.status == 200


async def read_events(plane) -> str:
    """Return the messages of the Events on the ConfigMap."""
    events = await plane.api.list("Event", sites.NAMESPACE)
    return "\n".join(event["message"] for event in events if event["involvedObject"]["name"] == sites.CONFIGMAP)


async def test_20_a_deleted_policy_stays_in_force_and_is_reported(fault, plane, installed, admitted):
    assert await admitted() == expect("1")
    await plane.api.delete("ConfigMap", sites.CONFIGMAP, sites.NAMESPACE)
    await sites.wait_metric(installed.webhook, "railwright_policy_valid", 0)
    for _ in range(20):
        assert await admitted() == expect("1")
    assert await ready(plane, installed.webhook)

    async def has_message() -> bool:
        return "the policy was deleted" in await read_events(plane)

    await waiting.wait(has_message, describe="an Event that the policy was deleted")
    await installed.policy(policy("2"))
    await sites.wait_metric(installed.webhook, "railwright_policy_valid", 1)
    assert await admitted() == expect("2")
    fault.saw(
        "20 pods injected by the last valid policy after the deletion; ready, railwright_policy_valid 0, an Event"
    )


GARBAGE = {  # text of the policy -> message
    "broken YAML": ("fabrics: {ib: [", "line 1"),
    "a list for a map": ("apiVersion: railwright.io/v1alpha1\nfabrics: [ib]\n", "fabrics"),
    "an unknown key": (policy("3", colour="red"), "fabrics.ib.rails[0].colour"),
    "an unknown transport": (policy("3").replace("infiniband", "omnipath"), "omnipath"),
    "a mebibyte": ("x" * MEBIBYTE, "has more than 131072 characters; shorten it"),
}


async def test_21_a_garbled_policy_is_refused_as_a_whole(fault, plane, installed, admitted):
    slowest = waited = 0.0
    for name, (text, place) in GARBAGE.items():
        began = time.monotonic()
        put = asyncio.create_task(installed.policy(text))

        async def has_message(place: str = place) -> bool:
            nonlocal waited
            asked = time.monotonic()
            assert await admitted() == expect("1"), "pods meanwhile"
            waited = max(waited, time.monotonic() - asked)
            seen = await read_events(plane)
            assert place in seen, seen[-1000:]
            return True

        await waiting.wait(has_message, seconds=120, describe=f"an Event on the ConfigMap about {name}")
        await put
        slowest = max(slowest, time.monotonic() - began)
        assert await sites.metric(installed.webhook, "railwright_policy_valid") == 0, name
        assert await ready(plane, installed.webhook), name
    assert "the last valid policy stays in force" in await read_events(plane)
    described = await plane.kubectl("describe", "configmap", sites.CONFIGMAP, "-n", sites.NAMESPACE)
    assert "PolicyInvalid" in described
    await installed.policy(policy("4"))
    await sites.wait_metric(installed.webhook, "railwright_policy_valid", 1)
    assert await admitted() == expect("4")
    assert waited < 2, "reading it holds up nobody"
    fault.saw(
        f"{len(GARBAGE)} kinds, one of a mebibyte: reported by an Event with line or field within {slowest:.1f} s; "
        f"pods meanwhile by the last valid policy, the slowest after {waited:.1f} s; ready; the next valid one in force"
    )


async def test_22_each_pod_follows_exactly_one_policy(fault, plane, installed, admitted):
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
            config_map = await plane.api.get("ConfigMap", sites.CONFIGMAP, sites.NAMESPACE)
            for pair in zip(markers[::2], markers[1::2], strict=True):
                before = seen.total()
                await waiting.wait(lambda before=before: seen.total() > before + 10, describe="10 pods")
                at = []
                for marker in pair:
                    config_map["data"] = {sites.KEY: policy(marker)}
                    config_map = await plane.api.replace(config_map)
                    at.append(time.monotonic())
                apart.append(at[1] - at[0])
            await waiting.wait(lambda: expect(markers[-1]) in seen, describe="a pod by the last policy")
        finally:
            stop.set()
    assert set(seen) <= {expect(marker) for marker in ["1", *markers]}, "a pod of two policies, or of none"
    assert len(seen) > len(markers) // 2
    close = [seconds for seconds in apart if seconds < 0.1]
    assert close, apart
    fault.saw(
        f"{seen.total()} pods, the policy replaced {len(markers)} times, {len(close)} times twice within 100 ms "
        f"({min(close) * 1000:.0f} ms): {len(seen)} policies seen, each pod has the values of the one it names"
    )


async def test_23_a_pod_keeps_the_values_of_the_first_replica(fault, plane, namespace, installed, tmp_path):
    """In the worst case both replicas review each pod, and the first one again if the second changed it."""
    text = policy("2", resource="other.y/hca").replace('"IPC_LOCK"', '"IPC_LOCK", "SYS_RESOURCE"')
    (tmp_path / "policy.yaml").write_text(text)
    certificate, key = plane.certificates.paths("webhook-serving")
    files = (f"--tls-cert={certificate}", f"--tls-key={key}", f"--policy={tmp_path / 'policy.yaml'}")
    other = await plane.serve("webhook", *files, installed.kubeconfig("webhook"), "--drain-seconds=0")
    await other.ready()
    second = "railwright-test-second"  # by its name called after the first
    await plane.register_webhook(other.port, namespaces=[namespace], name=second)
    try:
        created = await waiting.wait(lambda: by_both(plane, namespace), describe="both replicas to be called")
        for _ in range(20):
            assert read_values(await by_both(plane, namespace)) == read_values(created), "all pods alike"
        again = {**POD, "metadata": {**POD["metadata"], "annotations": created["metadata"]["annotations"]}}
        again["spec"] = {**POD["spec"], "containers": [without_token(created["spec"]["containers"][0])]}
        assert read_values(await plane.api.create(again, namespace=namespace, dry_run=True)) == read_values(created), (
            "nothing grows"
        )
    finally:
        await plane.api.delete("MutatingWebhookConfiguration", second)
    variables, limits = read_values(created)
    assert (variables["MARKER"], variables["NCCL_IB_HCA"]) == ("1", "=mlx5_1"), (
        "values of the first, none of the second"
    )
    assert limits == {"nvidia.com/gpu": "1", "x.y/hca": "1", "other.y/hca": "1"}, "nothing is taken away from a pod"
    shown = [await policies_shown(server) for server in (installed.webhook, other)]
    assert shown[0] != shown[1], "by which the alert RailwrightPolicySkew tells"
    fault.saw(
        "21 pods reviewed by both in turn: no error 500, all alike, values of the first, devices of both pools "
        "where those differ; another review changes nothing; two digests in railwright_policy_info, an alert"
    )


async def policies_shown(server) -> set[str]:
    lines = (await server.metrics()).splitlines()
    return {line for line in lines if line.startswith("railwright_policy_info{") and line.endswith(" 1.0")}


async def by_both(plane, namespace: str) -> dict:
    """Return a pod after reviews by both replicas, with the devices of the second too."""
    created = await plane.api.create(POD, namespace=namespace, dry_run=True)
    assert "other.y/hca" in created["spec"]["containers"][0]["resources"]["limits"]
    return created


def read_values(created: dict) -> tuple[dict, dict]:
    container = created["spec"]["containers"][0]
    return {entry["name"]: entry.get("value") for entry in container["env"]}, container["resources"]["limits"]


def without_token(container: dict) -> dict:
    return {
        key: value for key, value in container.items() if key != "volumeMounts"
    }  # the token's mount has a new name each time
