"""Annotations of a pod with rails of claims when it is bound: the devices of its claims."""

import asyncio
import json

import admitting
import devices
import msgspec
import pytest
from admitting import fabric, view

from railwright.cluster import expression_process
from railwright.fabric import node_views
from railwright.fabric.claims import objects
from railwright.serving import metrics, routes
from webhook import app, bindings, state

CONF, PLACEMENT = "railwright.io/nccl.conf", "railwright.io/placement"
UCX = "railwright.io/ucx-net-devices"
CAPTURED = admitting.WIRE / "admission-bindings-admin.json"
UID = json.loads(CAPTURED.read_text())["request"]["object"]["metadata"]["uid"]
RAILS = "[{name: rail0, device: rdmap16s27, interface: net1}, {name: rail1, device: rdmap32s27}]"
BY = fabric(rails=RAILS)
NIC = "pci-0000-{}-1b-0"


def pod(*entries: dict, **more) -> dict:
    """Return a pod with claims alone, as its author wrote it."""
    container = {"name": "c", "image": "i", "resources": {"claims": [{"name": entry["name"]} for entry in entries]}}
    return admitting.pod(container, resourceClaims=[*entries], **more)


BY_TEMPLATE = {"name": "nics", "resourceClaimTemplateName": "two-nics"}
DIRECT = {"name": "nics", "resourceClaimName": "train-nics"}


def claim(name: str = "train-nics", *, entry: str = "", nics=("20", "10"), **more) -> dict:
    """Return a claim of the pod that holds these NICs, in the order of its requests."""
    requests = {f"nic{number}": "dranet" for number in range(len(nics))}
    allocated = [("dra.net", "gpu-3", NIC.format(root)) for root in nics]
    tree = devices.build_claim(name, requests, pod_uid=UID, allocated=allocated, **more)
    tree["metadata"]["namespace"] = "prod"
    if entry:
        tree["metadata"].setdefault("annotations", {})["resource.kubernetes.io/pod-claim-name"] = entry
    return tree


def name_pod(tree: dict) -> dict:
    """Return the pod that the captured Binding binds."""
    metadata = json.loads(CAPTURED.read_text())["request"]["object"]["metadata"]
    tree["metadata"] |= {"name": metadata["name"], "namespace": "prod", "uid": UID}
    return tree


def caches(tree: dict, *claims: dict, slices=None, classes=(), allocatable=None) -> state.State:
    known = state.State()
    node = {"metadata": {"name": "gpu-3"}, "status": {"allocatable": allocatable or {}}}
    known.nodes.replace([msgspec.convert(node, node_views.Node)])
    known.devices.classes.replace(devices.read_classes(*classes))
    known.devices.slices.replace(devices.read_slices(*(devices.build_slices("gpu-3") if slices is None else slices)))
    known.devices.claims.replace(read_claims(*claims))
    known.pods.replace([view(name_pod(tree))])
    return known


def read_claims(*trees: dict) -> list[objects.ConfiguredClaim]:
    return [msgspec.convert(tree, objects.ConfiguredClaim) for tree in trees]


def answer(known: state.State, by=BY) -> dict:
    return json.loads(bindings.handle(bindings.read(CAPTURED.read_bytes()), by, known).body)["response"]


def list_written(known: state.State, by=BY) -> dict:
    response = answer(known, by)
    assert response["allowed"]
    return {
        operation["path"].rpartition("/")[2].replace("~1", "/"): operation["value"]
        for operation in admitting.operations(response)
    }


def read_placement(known: state.State, by=BY) -> dict:
    return json.loads(list_written(known, by)[PLACEMENT])


PLACEHOLDER = "NCCL_IB_HCA==not-written-at-binding\nNCCL_NET=not-written-at-binding\n"


@pytest.mark.parametrize(
    ("entry", "tree", "claim_name"),
    [(DIRECT, claim(), "train-nics"), (BY_TEMPLATE, claim("p-nics-x7k2p", entry="nics"), "nics")],
    ids=["direct", "template"],
)
def test_the_devices_of_a_claim_are_listed_in_the_order_of_the_rails(entry, tree, claim_name):
    admitted = admitting.admitted(pod(entry), BY)
    assert admitted["metadata"]["annotations"][CONF] == PLACEHOLDER
    assert "NCCL_IB_HCA" not in admitting.env(admitted)
    known = caches(admitted, tree)
    assert list_written(known)[CONF] == "NCCL_IB_HCA==rdmap16s27,rdmap32s27\n"
    assert list_written(known)[UCX] == "rdmap16s27:1,rdmap32s27:1"
    assert read_placement(known) == {
        "node": "gpu-3",
        "shape": None,
        "rails": ["rail0", "rail1"],
        "domains": [],
        "devices": [
            {
                "rail": "rail0",
                "claim": claim_name,
                "request": "nic1",
                "device": NIC.format("10"),
                "rdmaDevice": "rdmap16s27",
                "interface": "net1",
            },
            {
                "rail": "rail1",
                "claim": claim_name,
                "request": "nic0",
                "device": NIC.format("20"),
                "rdmaDevice": "rdmap32s27",
            },
        ],
    }


def test_a_device_of_no_rail_is_listed_last():
    known = caches(admitting.admitted(pod(DIRECT), BY), claim(nics=("a0", "20")))
    assert list_written(known)[CONF] == "NCCL_IB_HCA==rdmap32s27,rdmap160s27\n"
    assert read_placement(known)["rails"] == ["rail1"]


@pytest.mark.parametrize("nics", [("10", "20"), ()])
def test_a_network_interface_without_rdma_that_the_pod_claims_beside_its_rails_does_not_count(nics):
    """Such as the class netdev.google.com beside mrdma.google.com: dranet offers both."""
    tree = claim(nics=nics)
    tree["spec"]["devices"]["requests"].append({"name": "storage", "exactly": {"deviceClassName": "dranet"}})
    result = {"request": "storage", "driver": "dra.net", "pool": "gpu-3", "device": "eth0"}
    tree["status"].setdefault("allocation", {"devices": {"results": []}})["devices"]["results"].append(result)
    tree["status"]["reservedFor"] = [{"resource": "pods", "name": "p", "uid": UID}]
    known = caches(admitting.admitted(pod(DIRECT), BY), tree)
    assert not answer(known).get("warnings")
    assert list_written(known)[CONF] == "NCCL_IB_HCA==rdmap16s27,rdmap32s27\n"
    assert [device["device"] for device in read_placement(known).get("devices", [])] == [
        NIC.format(root) for root in nics
    ]


def test_the_interface_of_the_claims_configuration_precedes_the_policys():
    tree = claim()
    tree["status"]["allocation"]["devices"]["config"] = [
        {"source": "FromClass", "opaque": {"driver": "dra.net", "parameters": {"interface": {"name": "any"}}}},
        {"source": "FromClaim", "requests": ["nic1"],
         "opaque": {"driver": "dra.net", "parameters": {"interface": {"name": "eth7"}}}},
    ]  # fmt: skip
    known = caches(admitting.admitted(pod(DIRECT), BY), tree)
    assert [device["interface"] for device in read_placement(known)["devices"]] == ["eth7", "any"]


def test_extended_resources_of_device_classes_are_read_from_the_claim_that_the_scheduler_made():
    policy = fabric(rails=f"[{{name: rail0, resource: {devices.RAIL_RESOURCES[0]}, device: wrong}}]")
    tree = admitting.pod({"name": "c", "image": "i", "resources": {"limits": {devices.RAIL_RESOURCES[0]: "1"}}})
    known = admitting.known(extended=frozenset({devices.RAIL_RESOURCES[0]}))
    admitted = admitting.admitted(tree, policy, known)
    assert admitted["metadata"]["annotations"][CONF] == PLACEHOLDER
    held = claim("p-extended-resources-q9f", nics=("10",), extended=True)
    held["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] = "rail0"
    bound = caches(admitted, held, classes=devices.CLASSES)
    assert list_written(bound, policy)[CONF] == "NCCL_IB_HCA==rdmap16s27\n"
    assert [device["rail"] for device in read_placement(bound, policy)["devices"]] == ["rail0"]
    missing = answer(caches(admitted, classes=devices.CLASSES), policy)
    assert missing["warnings"][0].startswith("AllocationUnknown: the devices of extended resources are not known")
    plugin = {devices.RAIL_RESOURCES[0]: "1"}
    assert (
        list_written(caches(admitted, classes=devices.CLASSES, allocatable=plugin), policy)[CONF]
        == "NCCL_IB_HCA==wrong\n"
    )


def test_without_an_allocation_the_pod_is_bound_and_its_file_still_names_no_device():
    admitted = admitting.admitted(pod(DIRECT), BY)
    unallocated = claim(nics=())
    for known in (caches(admitted), caches(admitted, unallocated)):
        response = answer(known)
        assert response["allowed"]
        (warning,) = response["warnings"]
        assert warning == (
            "AllocationUnknown: the devices of nics are not known to railwright yet, so NCCL_IB_HCA names none and "
            "NCCL does not start; delete the pod so that it is bound again"
        )
        assert list_written(known).keys().isdisjoint({CONF, UCX})
        assert "devices" not in read_placement(known)


def test_a_claim_that_is_reserved_for_another_pod_does_not_count():
    tree = claim()
    tree["status"]["reservedFor"][0]["uid"] = tree["metadata"]["ownerReferences"][0]["uid"] = "other"
    assert "AllocationUnknown" in answer(caches(admitting.admitted(pod(DIRECT), BY), tree))["warnings"][0]


def test_a_device_that_no_slice_names_leaves_the_list_unwritten():
    for slices in ([], devices.build_slices("gpu-3", without=[NIC.format("20")])):
        known = caches(admitting.admitted(pod(DIRECT), BY), claim(), slices=slices)
        (warning,) = answer(known)["warnings"]
        assert warning.startswith("AllocatedDevicesUnnamed: no ResourceSlice names the RDMA device of pci-0000-")
        assert "(train-nics/nic0)" in warning
        assert CONF not in list_written(known)


def test_claims_that_hold_no_nic_leave_the_list_to_the_policy():
    tree = devices.build_claim(
        "train-nics", {"gpu": "gpu.nvidia.com"}, pod_uid=UID, allocated=[("gpu.nvidia.com", "gpu-3", "gpu-0")]
    )
    tree["metadata"]["namespace"] = "prod"
    known = caches(admitting.admitted(pod(DIRECT), BY), tree)
    assert list_written(known)[CONF] == "NCCL_IB_HCA==rdmap16s27,rdmap32s27\n"
    assert "devices" not in read_placement(known)


def test_a_warning_becomes_an_event_of_the_pod_except_on_a_dry_run():
    admitted = admitting.admitted(pod(DIRECT), BY)
    request = bindings.read(CAPTURED.read_bytes())
    (event,) = bindings.handle(request, BY, caches(admitted)).events
    assert (event.owner.kind, event.owner.uid, event.namespace) == ("Pod", UID, "prod")
    assert event.messages[0].startswith("AllocationUnknown: ")
    dry = msgspec.structs.replace(request, dry_run=True)
    assert bindings.handle(dry, BY, caches(admitted)).events == ()


async def test_a_binding_waits_for_an_allocation_that_comes_late():
    known = caches(admitting.admitted(pod(DIRECT), BY))
    (route,) = [
        row for row in app.build_routes(known, lambda: BY, metrics.Metrics("webhook")) if row.path == "/mutate/bindings"
    ]
    task = asyncio.create_task(route.handle(routes.Call(CAPTURED.read_bytes(), {}, {}, {}, "")))
    await asyncio.sleep(0.05)
    assert not task.done()
    known.devices.claims.upsert(read_claims(claim())[0])
    reply = await asyncio.wait_for(task, 10)
    assert b"patch" in reply.body


async def test_the_device_of_a_rail_with_an_expression_is_known_after_its_evaluation():
    path = 'device.attributes["dra.net"].rdmaDevice'
    rails = ", ".join(
        f"{{name: rail{rail}, claim: {{expression: 'has({path}) && {path}.matches(\"^{name}$\")'}}}}"
        for rail, name in enumerate(devices.RDMA_DEVICES[:2])
    )
    policy = admitting.fabric("    claims: {deviceClass: dranet}\n", rails=f"[{rails}]")
    known = caches(pod({"name": "nics", "resourceClaimTemplateName": "nics"}), claim(entry="nics", nics=("10",)))
    [first] = known.devices.list_allocated(view(name_pod(pod())))
    known.devices.apply_policy(policy)
    node = known.get_node("gpu-3")
    [pending] = known.devices.list_allocated(view(name_pod(pod())))
    assert (first.expressions, pending.expressions) == (frozenset(), frozenset())
    assert not known.devices.is_complete(view(name_pod(pod())), node)
    waiting = asyncio.create_task(known.devices.wait(view(name_pod(pod())), node, 30))
    await asyncio.sleep(0)
    questions = known.devices.list_questions()
    assert len(questions) == 2
    known.devices.answer(await expression_process.answer(questions))
    await asyncio.wait_for(waiting, 5)
    [answered] = known.devices.list_allocated(view(name_pod(pod())))
    assert [expression.count(devices.RDMA_DEVICES[0]) for expression in answered.expressions] == [1]
