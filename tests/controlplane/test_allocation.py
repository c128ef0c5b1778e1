"""NCCL's device list follows the claims of a pod, on the real API server, its allocator and both schedulers."""

import asyncio
import json
import uuid

import devices
import pytest
import pytest_asyncio
from plane import binaries, registration, reverse_proxy, volcano, waiting
from plane import kube as kubes
from plane import nodes as plane_nodes

PLACEMENT, CONF, CALL = "railwright.io/placement", "railwright.io/nccl.conf", "railwright.io/rails"
CLASS = "dranet"
MAPPED = "example.com/rdma"  # the extended resource of a second class: any NIC
POLICY = """
apiVersion: railwright.io/v1alpha1
kind: FabricPolicy
fabrics:
  rails:
    transport: infiniband
    rails:
    - {name: rail0, device: rdmap16s27}
    - {name: rail1, device: rdmap32s27}
    - {name: rail2, device: rdmap144s27}
    - {name: rail3, device: rdmap160s27}
  mapped:
    transport: infiniband
    rails: [{name: rail0, resource: example.com/rdma}]
  claimed:
    transport: infiniband
    claims: {deviceClass: dranet}
    rails:
    - {name: rail0, device: rdmap16s27}
    - {name: rail1, device: rdmap32s27, interface: net2}
    - {name: rail2, device: rdmap144s27}
"""
NIC = 'device.driver == "dra.net" && has(device.attributes["dra.net"].rdmaDevice)'
BOTH = pytest.mark.parametrize("scheduler", ["volcano", "default-scheduler"])
_SLICE, _CLASS = "resource.k8s.io/v1/ResourceSlice", "resource.k8s.io/v1/DeviceClass"
_CLAIM = "resource.k8s.io/v1/ResourceClaim"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def classes(plane):
    made = [devices.build_class(CLASS, NIC), devices.build_class("mapped", NIC, MAPPED)]
    for tree in made:
        await plane.api.create(tree)
    yield
    for tree in made:
        await plane.api.delete(_CLASS, tree["metadata"]["name"])


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def offered(plane):
    """Yield two nodes of slices."""
    nodes, made = plane_nodes.Nodes(plane.api), []
    for name in ("dra-0", "dra-1"):
        await nodes.make(name, gpus=0, rails={})
        for tree in devices.build_slices(name):
            await plane.api.create(tree)
            made.append(tree["metadata"]["name"])
    yield
    for name in made:
        await plane.api.delete(_SLICE, name)
    await nodes.remove()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def asked(plane, module_site, classes, offered):
    """Yield the proxy by which both schedulers call the extender, also for pods with claims alone."""
    opened = await reverse_proxy.ReverseProxy().open()
    await module_site.policy(POLICY)
    opened.backend = (await module_site.start_extender()).port
    entry = kubes.entry(opened.url, ignored=False)
    entry["managedResources"] = [{"name": CALL, "ignoredByScheduler": False}]
    conf = volcano.conf(volcano.extender(f"{opened.url}/volcano", managed=(CALL,)), claims=True)
    await asyncio.gather(plane.schedulers.volcano(conf=conf), plane.schedulers.kube(entry))
    yield opened
    await plane.schedulers.reset()
    await opened.close()


@pytest_asyncio.fixture(loop_scope="session")
async def installed(namespace, module_site, asked):  # in this order: it is unregistered before its namespace goes
    yield await module_site.install(POLICY, namespace)
    await module_site.unregister()


def request(name: str, *rdma_devices: str) -> dict:
    """Return a request of one NIC, of those with one of these names."""
    selector = {
        "cel": {"expression": f'device.attributes["dra.net"].rdmaDevice in {list(rdma_devices)}'.replace("'", '"')}
    }
    exactly = {"deviceClassName": CLASS} | ({"selectors": [selector]} if rdma_devices else {})
    return {"name": name, "exactly": exactly}


async def create_claim(plane, namespace: str, name: str, *requests: dict, template: bool) -> None:
    spec = {"devices": {"requests": [*requests]}}
    kind = "ResourceClaimTemplate" if template else "ResourceClaim"
    tree = {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": {"name": name}}
    await plane.api.create(tree | {"spec": {"spec": spec} if template else spec}, namespace=namespace)


def pod(scheduler: str, *, template: str = "", claim: str = "", name: str = "p") -> dict:
    entry = {"name": "nics"} | ({"resourceClaimTemplateName": template} if template else {"resourceClaimName": claim})
    container = {"name": "c", "image": "i", "resources": {"claims": [{"name": "nics"}]}}
    spec = {"schedulerName": scheduler, "containers": [container], "resourceClaims": [entry]}
    metadata = {"name": name, "labels": {"railwright.io/fabric": "rails", "name": name}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


async def bind(plane, namespace: str, name: str = "p") -> dict:
    async def find():
        (bound_pod,) = await plane.api.list("Pod", namespace, labels=f"name={name}")
        assert bound_pod["spec"].get("nodeName"), bound_pod["status"]
        return bound_pod

    return await waiting.wait(find, seconds=60, describe=f"pod {name} to be bound")


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
        for claim in await plane.api.list(_CLAIM, namespace)
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
    assert bound_pod["spec"]["containers"][0]["resources"]["limits"] == {CALL: "0"}
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
    metadata = {
        "name": "p",
        "labels": {"railwright.io/fabric": "claimed", "name": "p"},
        "annotations": {"railwright.io/rails": "rail1,rail2"},
    }
    spec = {"schedulerName": scheduler, "containers": [{"name": "c", "image": "i"}]}
    tree = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    await plane.api.create(tree, namespace=namespace)
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
    tree = kubes.pod("p", gpus=0, rails={MAPPED: 1}, fabric="mapped", labels={"name": "p"})
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


@pytest_asyncio.fixture(loop_scope="session")
async def opted_in(plane, installed):
    """Yield a namespace with the label, and the entry of the manifests for its pods."""
    name = f"claims-{uuid.uuid4().hex[:6]}"
    tree = registration.shipped(installed.webhook.port, plane.certificates.authority.certificate_pem)
    hooks = [hook for hook in tree["webhooks"] if hook["name"] == "namespaced-pods.railwright.io"]
    await plane.api.create(tree | {"metadata": {"name": name}, "webhooks": hooks})
    await plane.make_namespace(name, {"railwright.io/fabric": "rails"})
    yield name
    await plane.api.delete("MutatingWebhookConfiguration", name)
    await plane.remove_namespace(name)


async def test_a_namespace_label_opts_in_pods_with_claims(plane, opted_in):
    tree = pod("default-scheduler", template="two")
    del tree["metadata"]["labels"]["railwright.io/fabric"]

    async def find_injected():
        created = await plane.api.create(tree, namespace=opted_in, dry_run=True)
        return created if "railwright.io/injection" in created["metadata"].get("annotations", {}) else None

    created = await waiting.wait(find_injected, describe="the webhook to be called for a pod with claims alone")
    assert created["spec"]["containers"][0]["resources"]["limits"] == {CALL: "0"}
    del tree["spec"]["containers"][0]["resources"]  # the pod has a claim that no container uses
    unused = await plane.api.create(tree, namespace=opted_in, dry_run=True)
    assert "annotations" not in unused["metadata"]
