"""Others that change the same pods on real nodes: a webhook that adds sidecars, and plugins of containerd (NRI).

What railwright has set reaches the container unchanged, and is not set twice.
"""

import asyncio
import copy
import json
import re
import socket

import peers
import pytest
import pytest_asyncio
from plane import peer, waiting
from realnode import images, layout, pods, rails, ranks

NETWORKS = "k8s.v1.cni.cncf.io/networks"
RECORD, PLACEMENT = "railwright.io/injection", "railwright.io/placement"
SUBNETS = [f"192.168.{rail + 2}" for rail in range(layout.RAILS)]
PROXY = {
    "name": "istio-proxy",
    "image": images.BUSYBOX,
    "command": ["sleep", "100000"],
    "env": [{"name": "PROXY", "value": "1"}],
    "resources": {"requests": {"cpu": "10m"}, "limits": {"cpu": "100m"}},
}


def add_proxy(tree: dict) -> dict:
    """Insert a proxy as the first container, a variable into each container, and an annotation, as a mesh does."""
    tree = peers.env_everywhere(peers.annotated(tree))
    containers = tree["spec"]["containers"]
    if all(container["name"] != PROXY["name"] for container in containers):
        containers.insert(0, copy.deepcopy(PROXY))
    return tree


def add_native_proxy(tree: dict) -> dict:
    """Add the proxy as Istio does since 1.27: an init container that is restarted always. With a volume."""
    tree = peers.env_everywhere(peers.volume(tree))
    inits = tree["spec"].setdefault("initContainers", [])
    if all(container["name"] != PROXY["name"] for container in inits):
        inits.insert(0, {**copy.deepcopy(PROXY), "restartPolicy": "Always"})
    return tree


ACTIONS = {action.__name__: action for action in (add_proxy, add_native_proxy)}
ORDERS = [(when, action) for when in (peer.BEFORE, peer.AFTER) for action in ACTIONS]


def describe_rank(name: str, annotations: dict[str, str]) -> dict:
    """Return a labelled pod with a GPU, for the node whose containerd has NRI."""
    return pods.describe(name, "roce-derived", on=layout.NRI_NODE, annotations=annotations)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def start(installed):
    """Create a pod with annotations in the namespace of the rails and wait until it is ready; return it."""
    api, names = installed.plane.api, []

    async def start_pod(name: str, annotations: dict[str, str]) -> dict:
        await api.create(describe_rank(name, annotations), namespace=rails.NAMESPACE)
        names.append(name)
        return await pods.wait_ready(api, rails.NAMESPACE, name, seconds=120)

    yield start_pod
    for name in names:
        await api.delete("Pod", name, rails.NAMESPACE, grace=0)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def alone(real_site, start):
    """Return a running pod that only railwright changed, and the facts of its container."""
    return await start("alone", {}), ranks.Rank(real_site, rails.NAMESPACE, "alone", "main")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def registered(installed):
    """Yield a webhook that adds sidecars, called before and after ours, and again when another has changed the pod."""
    plane = installed.plane
    address = (socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", 0))
    listener = installed.site.network.make_socket(address)
    listener.bind(("127.0.0.1", 0))
    other = peer.Peer(plane.api, plane.certificates, ACTIONS, reinvocation="IfNeeded", listener=listener)

    async def is_called() -> bool:
        for when in (peer.BEFORE, peer.AFTER):
            probe = describe_rank("probe", {when: "add_proxy"})
            pod = await plane.api.create(probe, namespace=rails.NAMESPACE, dry_run=True)
            assert pod["spec"]["containers"][0]["name"] == PROXY["name"], f"not called: {when}"
        return True

    try:
        await other.start(rails.NAMESPACE)
        await waiting.wait(is_called, describe="the other webhook to be called before and after ours")
        yield
    finally:
        await other.stop()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def meshed(registered, start):
    """Return a running pod for each order of the webhooks and each form of a sidecar."""
    started = [start(name_pod(when, action), {when: action}) for when, action in ORDERS]
    return dict(zip(ORDERS, await asyncio.gather(*started), strict=True))


def name_pod(when: str, action: str) -> str:
    return f"{action.replace('_', '-')}-{when.partition('/')[2]}"


def find_container(pod: dict, name: str) -> dict:
    spec = pod["spec"]
    return next(
        init_container
        for init_container in [*spec.get("initContainers", []), *spec["containers"]]
        if init_container["name"] == name
    )


async def check_rank(rank: ranks.Rank, alone: ranks.Rank) -> None:
    """Check rails, devices, capabilities and NCCL's variables against those of the pod that nobody else changes."""
    await rank.check_rails(SUBNETS)
    assert await rank.read_nccl() == await alone.read_nccl()
    assert await rank.list_devices("/dev/infiniband") == await alone.list_devices("/dev/infiniband")
    assert len(await find_gpus(rank)) == 1
    assert await rank.has_capability(ranks.IPC_LOCK)
    await rank.check_shared_memory(64)


async def find_gpus(rank: ranks.Rank) -> set[str]:
    return {name for name in await rank.list_devices("/dev") if re.fullmatch(r"nvidia\d", name)}


@pytest.mark.parametrize(("when", "action"), ORDERS)
async def test_rank_beside_a_sidecar_is_equipped(real_site, alone, meshed, when, action):
    rank = ranks.Rank(real_site, rails.NAMESPACE, name_pod(when, action), "main")
    await check_rank(rank, alone[1])
    environment = await rank.read_environment()
    assert (environment["PEER_A"], environment["PEER_B"]) == ("a", rank.pod), "the other webhook's variables"


@pytest.mark.parametrize(("when", "action"), ORDERS)
async def test_sidecar_has_neither_devices_nor_variables_of_the_rails(real_site, meshed, when, action):
    sidecar = ranks.Rank(real_site, rails.NAMESPACE, name_pod(when, action), PROXY["name"])
    assert "infiniband" not in await sidecar.list_devices("/dev")
    assert await sidecar.read_nccl() == {}
    assert (await sidecar.read_environment())["PROXY"] == "1"
    assert find_container(meshed[when, action], PROXY["name"])["resources"] == PROXY["resources"]


@pytest.mark.parametrize(("when", "action"), ORDERS)
async def test_nothing_is_added_twice_and_a_stored_pod_is_complete(installed, alone, meshed, when, action):
    pod, own = meshed[when, action], find_container(alone[0], "main")
    container = find_container(pod, "main")
    assert container["resources"] == own["resources"]
    assert container["securityContext"] == own["securityContext"]
    names = [entry["name"] for entry in container["env"]]
    assert sorted(set(names) - {"PEER_A", "PEER_B"}) == sorted(entry["name"] for entry in own["env"])
    assert len(names) == len(set(names))
    annotations = pod["metadata"]["annotations"]
    assert annotations[NETWORKS] == alone[0]["metadata"]["annotations"][NETWORKS]
    assert json.loads(annotations[RECORD])["containers"] == ["main"]
    before = {name: text for name, text in annotations.items() if name != PLACEMENT}  # it is written at binding
    metadata = {"name": "again", "labels": pod["metadata"]["labels"], "annotations": before}
    stored = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod["spec"]}
    again = await installed.plane.api.create(stored, namespace=rails.NAMESPACE, dry_run=True)
    assert again["spec"] == pod["spec"]
    for key in (NETWORKS, RECORD):
        assert again["metadata"]["annotations"][key] == annotations[key]


async def test_nri_plugins_leave_rails_and_variables(real_site, alone, start):
    limits = [
        {"type": "RLIMIT_MEMLOCK", "soft": 65536, "hard": 65536},
        {"type": "RLIMIT_NOFILE", "soft": 512, "hard": 1024},
    ]
    changes = {"ulimits.nri.containerd.io/container.main": json.dumps(limits), "nri.test/inject": "FIRST=1 SECOND=2"}
    await start("adjusted", changes)
    rank = ranks.Rank(real_site, rails.NAMESPACE, "adjusted", "main")
    environment = await rank.read_environment()
    assert (environment["FIRST"], environment["SECOND"]) == ("1", "2"), "the variables of the plugin"
    assert "injected" in await rank.list_devices("/dev")
    assert "io.containerd.nri.v1.nri" in await rank.run("cat", "/etc/injected"), "the mount of the plugin"
    lines = (await rank.run("cat", "/proc/1/limits")).splitlines()
    values = {line[:26].strip(): line[26:].split()[:2] for line in lines}
    assert values["Max locked memory"] == ["65536", "65536"], "IPC_LOCK stands above it"
    assert values["Max open files"] == ["512", "1024"]
    await check_rank(rank, alone[1])
