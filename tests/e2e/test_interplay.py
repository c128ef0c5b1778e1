"""Networks on real nodes that are removed, or that are Multus' default network."""

import pytest
from plane import conditions, waiting
from realnode import layout, pods, rails

NETWORK = f"rdma-net-ipam-{layout.name_interface(0)}"  # of rail0
KIND = "NetworkAttachmentDefinition"


def describe_rank(name: str, **metadata) -> dict:
    """Return a labelled pod with a GPU, for a node by a selector, so that a scheduler places it."""
    pod = pods.describe(name, "roce-derived", on=layout.NODES[0])
    pod["metadata"] |= metadata
    return pod


@pytest.fixture
async def network(installed):
    """Yield the network of rail0, and restore it afterwards."""
    api = installed.plane.api
    original = await api.get(KIND, NETWORK, rails.NAMESPACE)
    metadata = {key: original["metadata"][key] for key in ("name", "namespace")}
    plain = {**original, "metadata": metadata}
    yield plain
    await api.delete(KIND, NETWORK, rails.NAMESPACE)
    await api.create(plain)


async def wait_event(installed, name: str, text: str) -> str:
    """Wait until kubelet reports why a pod does not start, and return the message."""
    place = (installed.plane.api, rails.NAMESPACE, "FailedCreatePodSandBox")
    return conditions.read_message(await conditions.wait_event(*place, text, of=name))


async def test_a_removed_network_is_named_until_it_returns(installed, create, network):
    gated = describe_rank("waits")
    gated["spec"]["schedulingGates"] = [{"name": "example.com/wait"}]
    await create(gated)
    await installed.plane.api.delete(KIND, NETWORK, rails.NAMESPACE)
    await installed.plane.api.patch("Pod", "waits", {"spec": {"schedulingGates": None}}, rails.NAMESPACE)
    assert NETWORK in await wait_event(installed, "waits", "cannot find a network-attachment-definition")

    async def find_failures() -> list[str]:
        report = await installed.check()
        return [
            check["detail"] for check in report["checks"] if check["state"] == "fail" and NETWORK in check["detail"]
        ]

    failures = await waiting.wait(find_failures, describe="check to name the network")
    assert any(f"{rails.NAMESPACE}/{NETWORK}" in failure for failure in failures), failures
    await installed.plane.api.create(network)
    await pods.wait_ready(installed.plane.api, rails.NAMESPACE, "waits", seconds=120)


async def test_rails_keep_their_names_beside_the_default_network(installed, create):
    network = f"{rails.NAMESPACE}/{NETWORK}"
    pod = describe_rank("elsewhere", annotations={"v1.multus-cni.io/default-network": network})
    await create(pod)
    await pods.wait_ready(installed.plane.api, rails.NAMESPACE, "elsewhere")
    output = await installed.site.execute(rails.NAMESPACE, "elsewhere", "ip", "-o", "-4", "addr")
    names = [line.split()[1] for line in output.splitlines()]
    assert names == ["lo", "eth0", *(f"net{rail + 1}" for rail in range(layout.RAILS))]
    (eth0,) = [line for line in output.splitlines() if " eth0 " in line]
    assert "inet 192.168.2." in eth0
