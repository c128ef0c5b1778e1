"""NCCL's device list follows the claims of a pod, on the real API server, its allocator and both schedulers."""

import asyncio
import json

import devices
import pytest
import pytest_asyncio
from plane import binaries, gangs, manifests, volcano, waiting

PLACEMENT, CONF = "railwright.io/placement", "railwright.io/nccl.conf"
MAPPED = "example.com/rdma"  # the extended resource of a second class: any NIC
NIC = 'device.driver == "dra.net" && has(device.attributes["dra.net"].rdmaDevice)'
CLASSES = (devices.build_class("dranet", NIC), devices.build_class("mapped", NIC, MAPPED))
RAILS = [{"name": f"rail{rail}", "device": device} for rail, device in enumerate(devices.RDMA_DEVICES)]
POLICY = manifests.policy(
    {
        "rails": manifests.fabric(RAILS),
        "mapped": manifests.fabric([{"name": "rail0", "resource": MAPPED}]),
        "claimed": manifests.fabric(
            [RAILS[0], RAILS[1] | {"interface": "net2"}, RAILS[2]], claims={"deviceClass": "dranet"}
        ),
    }
)
BOTH = pytest.mark.parametrize("scheduler", ["volcano", "default-scheduler"])


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def asked(plane, module_site, device_classes, module_nodes):
    """Yield the proxy by which both schedulers call the extender, also for pods with claims alone."""
    for name in ("dra-0", "dra-1"):
        await module_nodes.make_with_slices(name)
    await module_site.policy(POLICY)
    await module_site.start_extender()
    entry = gangs.entry(module_site.proxy.url, ignored=False, managed=[manifests.CALL])
    url = f"{module_site.proxy.url}/volcano"
    conf = volcano.conf(volcano.extender(url, managed=(manifests.CALL,)), claims=True)
    await asyncio.gather(plane.schedulers.volcano(conf=conf), plane.schedulers.kube(entry))
    return module_site.proxy


@pytest_asyncio.fixture(loop_scope="session")
async def installed(asked, installed):
    """Yield the installation, which both schedulers ask."""
    return installed


def request(name: str, *rdma_devices: str) -> dict:
    """Return a request of one NIC, of those with one of these names."""
    selector = {
        "cel": {"expression": f'device.attributes["dra.net"].rdmaDevice in {list(rdma_devices)}'.replace("'", '"')}
    }
    exactly = {"deviceClassName": "dranet"} | ({"selectors": [selector]} if rdma_devices else {})
    return {"name": name, "exactly": exactly}


async def create_claim(plane, namespace: str, name: str, *requests: dict, template: bool) -> None:
    needs = {"requests": [*requests]}
    claim = manifests.build("ResourceClaim", name, spec={"devices": needs})
    await plane.api.create(manifests.claim_template(name, needs) if template else claim, namespace=namespace)


def pod(scheduler: str, *, template: str = "", claim: str = "", name: str = "p") -> dict:
    made_pod = manifests.claiming_pod(name, template, fabric="rails", labels={"name": name}, schedulerName=scheduler)
    if claim:
        made_pod["spec"]["resourceClaims"] = [{"name": "devices", "resourceClaimName": claim}]
    return made_pod


async def bind(plane, namespace: str, name: str = "p") -> dict:
    (bound_pod,) = await gangs.bound(plane.api, namespace, 1, f"name={name}")
    return bound_pod


async def list_held(plane, namespace: str, node: str) -> set[str]:
    """Return the RDMA devices that the claims of a namespace hold, by the slices."""
    (tree,) = [slice_ for slice_ in devices.build_slices(node) if slice_["spec"]["driver"] == "dra.net"]
    names = {
        device["name"]: device["attributes"]["dra.net/rdmaDevice"]["string"]
        for device in tree["spec"]["devices"]
        if "dra.net/rdmaDevice" in device["attributes"]
    }
    results = [
        result
        for claim in await plane.api.list("ResourceClaim", namespace)
        for result in claim["status"]["allocation"]["devices"]["results"]
    ]
    assert {result["pool"] for result in results} == {node}
    return {names[result["device"]] for result in results}


def read_devices(bound_pod: dict) -> list[str]:
    conf = bound_pod["metadata"]["annotations"][CONF]
    assert conf.startswith("NCCL_IB_HCA=="), conf
    assert conf.count("\n") == 1, conf
    return conf.removeprefix("NCCL_IB_HCA==").strip().split(",")


@pytest.mark.parametrize(
    ("scheduler", "template"), [("volcano", True), ("default-scheduler", True), ("default-scheduler", False)]
)
async def test_the_file_names_the_claimed_devices_in_rail_order(
    plane, namespace, installed, asked, scheduler, template
):
    verb = "/volcano/prioritize" if scheduler == "volcano" else "/scheduler/prioritize"
    before = asked.counts[verb]
    late_first = (request("second", "rdmap160s27", "rdmap144s27"), request("first", "rdmap32s27"))
    await create_claim(plane, namespace, "two", *late_first, template=template)
    await plane.api.create(pod(scheduler, **{"template" if template else "claim": "two"}), namespace=namespace)
    bound_pod = await bind(plane, namespace)
    assert bound_pod["spec"]["containers"][0]["resources"]["limits"] == {manifests.CALL: "0"}
    assert asked.counts[verb] > before
    named = read_devices(bound_pod)
    assert named[0] == "rdmap32s27"
    assert set(named) == await list_held(plane, namespace, bound_pod["spec"]["nodeName"])
    ucx = ",".join(f"{device}:1" for device in named)
    assert bound_pod["metadata"]["annotations"]["railwright.io/ucx-net-devices"] == ucx
    placement = json.loads(bound_pod["metadata"]["annotations"][PLACEMENT])
    assert [device["rdmaDevice"] for device in placement["devices"]] == named
    assert [device["request"] for device in placement["devices"]] == ["first", "second"]
    assert placement["rails"] == [device["rail"] for device in placement["devices"]]


@BOTH
async def test_variables_follow_the_claims_that_railwright_writes(plane, namespace, installed, scheduler):
    annotations = {"railwright.io/rails": "rail1,rail2"}
    kinds = {"limits": {}, "labels": {"name": "p"}, "annotations": annotations, "schedulerName": scheduler}
    await plane.api.create(manifests.pod("p", "claimed", **kinds), namespace=namespace)
    bound_pod = await bind(plane, namespace)
    assert read_devices(bound_pod) == ["rdmap32s27", "rdmap144s27"]
    rail1, _ = json.loads(bound_pod["metadata"]["annotations"][PLACEMENT])["devices"]
    assert (rail1["rail"], rail1["request"], rail1["interface"]) == ("rail1", "rail1", "net2")


async def test_pods_of_a_node_share_no_device(plane, namespace, installed):
    await create_claim(plane, namespace, "two", request("a"), request("b"), template=True)
    names = [f"p{number}" for number in range(4)]
    for name in names:
        await plane.api.create(pod("default-scheduler", template="two", name=name), namespace=namespace)
    bound = await asyncio.gather(*(bind(plane, namespace, name) for name in names))
    lists = [(bound_pod["spec"]["nodeName"], device) for bound_pod in bound for device in read_devices(bound_pod)]
    assert len(lists) == len(set(lists)) == 8


@pytest.mark.skipif(
    binaries.release().kubernetes.startswith("1.34."), reason="DRAExtendedResource is alpha in 1.34, and off"
)
async def test_extended_resources_are_listed_by_their_claim(plane, namespace, installed):
    tree = gangs.pod("p", gpus=0, rails={MAPPED: 1}, fabric="mapped", labels={"name": "p"})
    await plane.api.create(tree, namespace=namespace)
    bound_pod = await bind(plane, namespace)
    assert set(read_devices(bound_pod)) == await list_held(plane, namespace, bound_pod["spec"]["nodeName"])
    (nic,) = json.loads(bound_pod["metadata"]["annotations"][PLACEMENT])["devices"]
    assert nic["rail"] == "rail0"


@BOTH
async def test_without_the_webhook_at_binding_the_file_names_no_device(plane, namespace, installed, scheduler):
    tree = pod(scheduler, template="two")
    await plane.api.create(tree, namespace=namespace)  # waits for its template
    await installed.webhook.stop()
    await create_claim(plane, namespace, "two", request("a"), template=True)
    bound_pod = await bind(plane, namespace)
    assert bound_pod["metadata"]["annotations"][CONF].splitlines() == [
        "NCCL_IB_HCA==not-written-at-binding",
        "NCCL_NET=not-written-at-binding",
    ]
    assert PLACEMENT not in bound_pod["metadata"]["annotations"]


async def test_a_namespace_label_opts_in_pods_with_claims(plane, namespace, installed):
    await plane.api.patch("Namespace", namespace, {"metadata": {"labels": {"railwright.io/fabric": "rails"}}})
    tree = pod("default-scheduler", template="two")
    del tree["metadata"]["labels"]["railwright.io/fabric"]

    async def find_injected():
        created = await plane.api.create(tree, namespace=namespace, dry_run=True)
        return created if "railwright.io/injection" in created["metadata"].get("annotations", {}) else None

    created = await waiting.wait(find_injected, describe="the webhook to be called for a pod with claims alone")
    assert created["spec"]["containers"][0]["resources"]["limits"] == {manifests.CALL: "0"}
    del tree["spec"]["containers"][0]["resources"]  # the pod has a claim that no container uses
    unused = await plane.api.create(tree, namespace=namespace, dry_run=True)
    assert "annotations" not in unused["metadata"]
