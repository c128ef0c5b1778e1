"""dranet on a real node moves the interfaces of claimed rails into the pods, and back.

The interfaces are real, their PCI addresses and RDMA devices are files, which an NRI plugin of the tests mounts where a
rank's kernel would show them. Everything else is as in a cluster: ResourceSlices of dranet, a template that railwright
writes, kube-scheduler with railwright's extender, kubelet's DRA plugins and containerd's NRI.
"""

import json
import re

import devices
import pytest_asyncio
from plane import waiting
from realnode import dranet, function_sysfs, keeper, layout, pods, rails, ranks

FABRIC, CLASS = "claimed", "dranet"
TEMPLATE, CLAIM = "resource.k8s.io/v1/ResourceClaimTemplate", "resource.k8s.io/v1/ResourceClaim"
FUNCTIONS = range(0, layout.FUNCTIONS, layout.FUNCTIONS // layout.RAILS)  # that of each rail
INTERFACES = [layout.name_function(index) for index in FUNCTIONS]
RDMA_DEVICES = [layout.name_function_device(index) for index in FUNCTIONS]
SUBNETS = [f"10.57.{rail}" for rail in range(layout.RAILS)]


def name_device(index: int) -> str:
    """Return the name that dranet gives to a virtual function."""
    return "pci-" + re.sub("[:.]", "-", layout.name_pci_function(index))


def describe_fabric() -> dict:
    """Return a fabric whose rails are virtual functions requested by claims; GPUs are of the device plugin."""
    rows = [
        {
            "name": f"rail{rail}",
            "device": RDMA_DEVICES[rail],
            "interface": f"net{rail + 1}",
            "claim": layout.name_pci_function(index),
        }
        for rail, index in enumerate(FUNCTIONS)
    ]
    claims = {"deviceClass": CLASS, "railAttribute": "dra.net/pciAddress"}
    return {"transport": "roce", "gpusPerNode": 8, "claims": claims, "rails": rows}


def describe_rank(name: str, **options) -> dict:
    """Return a pod of the fabric, with a grace period, so that it exists until kubelet has stopped it.

    kubelet's DRA manager releases, once a minute, the claims of pods that no longer exist. If their sandboxes still
    run, dranet no longer knows the interfaces when they stop, and these are deleted with the network namespace.
    """
    return pods.describe(name, FABRIC, terminationGracePeriodSeconds=1, **options)


async def set_up_interfaces(site) -> None:
    """Set the addresses of the rails' virtual functions on both nodes, as a node's network manager does."""
    for node in site.nodes.values():
        for subnet, name in zip(SUBNETS, INTERFACES, strict=True):
            await node.run("ip", "address", "add", f"{subnet}.{10 + node.settings.number}/24", "dev", name)
            await node.run("ip", "link", "set", name, "mtu", str(layout.MTU), "up")


async def reset_interfaces(site) -> None:
    for node in site.nodes.values():
        for name in INTERFACES:
            await node.run("ip", "address", "flush", "dev", name)
            await node.run("ip", "link", "set", name, "mtu", str(layout.MTU), "down")


async def list_interfaces(site) -> dict[str, set[str]]:
    """Return the flags of each link of the node's own network namespace by the link's name."""
    output = interrupted = "Dump was interrupted"
    while interrupted in output:  # a link has changed while they were listed
        output = await site.nodes[layout.NRI_NODE].run("ip", "-oneline", "link")
    return {
        name: set(flags.split(",")) for name, flags in re.findall(r"^\d+: ([^:@]+)\S* <(\S+)>", output, re.MULTILINE)
    }


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def driver(installed, real_site):
    """Yield dranet on the node with NRI; install a fabric of its devices, and kube-scheduler with the extender."""
    plane, started = real_site.plane, dranet.Driver(real_site)
    policy = json.loads(rails.describe_policy(installed.image))
    policy["fabrics"][FABRIC] = describe_fabric()
    device_class = devices.build_class(CLASS, f'device.driver == "{dranet.DRIVER}"')
    await set_up_interfaces(real_site)
    await plane.api.create(device_class)
    try:
        await started.install()
        await installed.set_policy(json.dumps(policy))
        await plane.call_extender_from_kube_scheduler()
        await waiting.wait(lambda: is_injected(plane.api), seconds=90, describe=f"the webhook to know {FABRIC}")
        yield started
    finally:
        await plane.remove_pods(rails.NAMESPACE)
        await plane.schedulers.kube()
        await installed.set_policy(rails.describe_policy(installed.image))
        await plane.api.delete("resource.k8s.io/v1/DeviceClass", CLASS)
        await started.remove()
        await reset_interfaces(real_site)


async def is_injected(client) -> bool:
    # the webhook rejects a fabric that it does not know yet
    pod = await client.create(describe_rank("probe"), namespace=rails.NAMESPACE, dry_run=True)
    return bool(pod["spec"].get("resourceClaims"))


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def rank(driver, real_site):
    """Return a running pod of the fabric, and its container."""
    classes = real_site.folder / keeper.NODES / "first-sys-class"
    number = real_site.nodes[layout.NRI_NODE].settings.number
    function_sysfs.make_class(
        classes, {index: f"{subnet}.{10 + number}" for index, subnet in zip(FUNCTIONS, SUBNETS, strict=True)}
    )
    first = describe_rank("first", annotations={"nri.test/sys-class": str(classes)})
    await real_site.plane.api.create(first, namespace=rails.NAMESPACE)
    pod = await pods.wait_ready(real_site.plane.api, rails.NAMESPACE, "first", seconds=120)
    return pod, ranks.Rank(real_site, rails.NAMESPACE, "first", "main")


async def test_dranet_publishes_the_virtual_functions_of_the_node(driver):
    functions = await driver.list_functions()
    for index in FUNCTIONS:
        attributes = functions[name_device(index)]
        expected = {
            "dra.net/pciAddress": layout.name_pci_function(index),
            "resource.kubernetes.io/pcieRoot": function_sysfs.name_root(index),
            "dra.net/rdma": True,
            "dra.net/ifName": layout.name_function(index),
            "dra.net/mtu": layout.MTU,
        }
        assert {name: attributes.get(name) for name in expected} == expected
        assert "dra.net/rdmaDevice" not in attributes, "so a rail with an interface is not selected by it"


async def test_kube_scheduler_calls_the_extender_for_a_pod_with_claims(installed, rank):
    assert await installed.count_requests("/scheduler/filter") > 0


async def test_interfaces_of_the_rails_move_into_the_pod(real_site, rank):
    pod, view = rank
    assert pod["spec"]["nodeName"] == layout.NRI_NODE
    assert pod["spec"]["schedulerName"] == "default-scheduler"
    addresses = await view.check_rails(SUBNETS)
    number = real_site.nodes[layout.NRI_NODE].settings.number
    assert list(addresses.values()) == [f"{subnet}.{10 + number}" for subnet in SUBNETS], "those of the node's NICs"
    links = await list_interfaces(real_site)
    assert not links.keys() & set(INTERFACES)
    assert layout.name_function(1) in links, "functions of no rail stay"


async def test_the_claim_allocates_a_virtual_function_to_each_rail_in_order(real_site, driver, rank):
    client, (pod, _) = real_site.plane.api, rank
    (entry,) = pod["spec"]["resourceClaims"]
    template = await client.get(TEMPLATE, entry["resourceClaimTemplateName"], rails.NAMESPACE)
    assert template["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "railwright"
    (status,) = pod["status"]["resourceClaimStatuses"]
    claim = await client.get(CLAIM, status["resourceClaimName"], rails.NAMESPACE)
    held = {result["request"]: result["device"] for result in claim["status"]["allocation"]["devices"]["results"]}
    assert held == {f"rail{rail}": name_device(index) for rail, index in enumerate(FUNCTIONS)}


async def test_nccl_conf_and_ucx_conf_name_the_rdma_devices_of_claimed_rails(rank):
    _, view = rank
    verbs = {layout.name_function_verbs(index) for index in FUNCTIONS}
    assert await view.list_devices("/dev/infiniband") == {"rdma_cm", *verbs}
    assert f"NCCL_IB_HCA=={','.join(RDMA_DEVICES)}\n" in await view.run("cat", "/run/railwright/nccl.conf")
    ports = ",".join(f"{device}:1" for device in RDMA_DEVICES)
    assert f"UCX_NET_DEVICES={ports}\n" in await view.run("cat", "/run/railwright/ucx.conf")
    found = json.loads(await view.run("cat", "/run/railwright/rails.json"))
    rows = [(row["name"], row["device"], row["interface"]) for row in found["rails"]]
    assert rows == [(f"rail{rail}", device, f"net{rail + 1}") for rail, device in enumerate(RDMA_DEVICES)]


async def test_a_jumbo_packet_passes_to_the_other_node_on_each_rail(real_site, rank):
    other = real_site.nodes[layout.NODES[0]]
    addresses = [f"{subnet}.{10 + other.settings.number}" for subnet in SUBNETS]
    await rank[1].ping_rails(dict(zip([f"net{rail + 1}" for rail in range(layout.RAILS)], addresses, strict=True)))


async def test_check_and_fabric_show_claimed_rails_with_the_pod_that_holds_them(installed, rank):
    report = await installed.check()
    states = {check["check"]: check["state"] for check in report["checks"] if check["subject"] == FABRIC}
    assert states["claim-devices"] == "ok", states
    view = await installed.run("fabric")
    claimed = [line.split() for line in view.partition(f"\n{FABRIC} ")[2].splitlines()]
    assert [layout.NRI_NODE, "bbbb", "0", "4", "0", f"{rails.NAMESPACE}/first"] in claimed, view


async def test_a_second_pod_gets_the_rails_once_the_first_is_deleted(installed, driver, rank):
    client = installed.plane.api
    second = describe_rank("second", skip="preflight")  # which would stop it: its interfaces will have no addresses
    await client.create(second, namespace=rails.NAMESPACE)

    async def is_refused() -> bool:
        conditions = (await client.get("Pod", "second", rails.NAMESPACE))["status"].get("conditions", [])
        return [(entry["type"], entry["status"]) for entry in conditions] == [("PodScheduled", "False")]

    async def is_explained() -> bool:
        answer = json.dumps(await installed.explain_pod(rails.NAMESPACE, "second"))
        assert f"rail0 has 0 of 1 free, 1 needed, held by {rails.NAMESPACE}/first" in answer, answer
        return True

    await waiting.wait(is_refused, seconds=60, describe="kube-scheduler to refuse the second pod")
    await waiting.wait(is_explained, seconds=60, describe="the extender to name the pod that holds the rails")
    held = (await driver.list_functions())[name_device(0)]
    assert held["dra.net/pciAddress"] == layout.name_pci_function(0)
    assert "dra.net/ifName" not in held, "the driver withdraws what it reads of an interface in its own namespace"
    await client.delete("Pod", "first", rails.NAMESPACE)
    await pods.wait_ready(client, rails.NAMESPACE, "second", seconds=120)
    view = ranks.Rank(installed.site, rails.NAMESPACE, "second", "main")
    mtus = await view.read_mtus()
    assert [mtus[f"net{rail + 1}"] for rail in range(layout.RAILS)] == [layout.MTU] * layout.RAILS
    assert list(await view.list_addresses()) == ["lo", "eth0"], "dranet gives interfaces back without their addresses"


async def test_interfaces_return_to_the_node_once_the_pod_is_deleted(installed, driver):
    await installed.plane.api.delete("Pod", "second", rails.NAMESPACE)

    async def are_back() -> bool:
        links = await list_interfaces(installed.site)
        assert set(INTERFACES) <= links.keys()
        return all("UP" in links[name] for name in INTERFACES)

    await waiting.wait(are_back, seconds=60, describe=driver.describe)

    async def is_published() -> bool:
        functions = await driver.list_functions()
        names = [functions[name_device(index)].get("dra.net/ifName") for index in FUNCTIONS]
        return names == INTERFACES

    await waiting.wait(is_published, seconds=60, describe="dranet to publish the interfaces again")
