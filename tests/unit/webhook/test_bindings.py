"""Annotations that are written when a pod is bound, also of the devices of its claims."""

import asyncio
import json

import admitting
import devices
import jsonpatch
import msgspec
import pytest
from admitting import SHAPES, fabric, pod, view

from railwright.cluster import reflector, resources
from railwright.fabric import hypernodes, node_views, views
from railwright.fabric.claims import objects
from railwright.serving import metrics, routes
from webhook import __main__ as webhook
from webhook import app, bindings, state

LEAF, SPINE = "fabric.topograph.run/tier-0", "fabric.topograph.run/tier-1"
PLACE = f"    placement: {{domains: [{LEAF}, {SPINE}]}}\n"
CAPTURED = admitting.WIRE / "admission-bindings-admin.json"
BINDING = json.loads(CAPTURED.read_text())["request"]["object"]


def caches(*pods: dict, labels: dict | None = None) -> state.State:
    known = state.State()
    node = {"metadata": {"name": "gpu-3", "labels": labels or {LEAF: "leaf-1", SPINE: "spine-0"}}}
    known.nodes.replace([msgspec.convert(node, node_views.Node)])
    known.pods.replace([view(tree) for tree in pods])
    return known


def name_pod(tree: dict, uid: str | None = None) -> dict:
    """Return the pod that the captured Binding binds."""
    metadata = BINDING["metadata"]
    tree["metadata"] |= {"name": metadata["name"], "namespace": "prod", "uid": uid or metadata["uid"]}
    return tree


def answer(known: state.State, by, body: bytes | None = None) -> dict:
    request = bindings.read(body or CAPTURED.read_bytes())
    return json.loads(bindings.handle(request, by, known).body)["response"]


def annotations(known: state.State, by) -> dict:
    response = answer(known, by)
    assert response["allowed"]
    return jsonpatch.apply_patch(BINDING, admitting.operations(response))["metadata"].get("annotations", {})


def test_the_placement_names_node_shape_rails_and_domains_closest_first():
    policy = fabric(PLACE)
    written = annotations(caches(name_pod(admitting.admitted(pod(), policy))), policy)
    assert json.loads(written["railwright.io/placement"]) == {
        "node": "gpu-3",
        "shape": None,
        "rails": ["rail0", "rail1"],
        "domains": ["leaf-1", "spine-0"],
    }
    assert list(written) == ["railwright.io/placement"]


def test_under_the_preset_volcano_the_domains_are_the_nodes_hypernodes():
    policy = fabric("    placement: {preset: volcano}\n")
    known = caches(name_pod(admitting.admitted(pod(), policy)))
    member = {"type": "Node", "selector": {"exactMatch": {"name": "gpu-3"}}}
    tree = {"metadata": {"name": "rack-7"}, "spec": {"tier": 1, "members": [member]}}
    known.hyper_nodes.replace([msgspec.convert(tree, hypernodes.HyperNode)])
    written = annotations(known, policy)
    assert json.loads(written["railwright.io/placement"])["domains"] == ["rack-7"]


def test_the_placement_of_an_earlier_binding_is_overwritten():
    """Volcano's Binding carries the pod's annotations, a placement of an earlier try among them."""
    policy = fabric(PLACE)
    tree = name_pod(admitting.admitted(pod(), policy))
    tree["metadata"]["annotations"]["railwright.io/placement"] = '{"node":"gpu-7"}'
    body = json.loads(CAPTURED.read_text())
    body["request"]["object"]["metadata"]["annotations"] = dict(tree["metadata"]["annotations"])
    response = answer(caches(tree), policy, json.dumps(body).encode())
    after = jsonpatch.apply_patch(body["request"]["object"], admitting.operations(response))["metadata"]["annotations"]
    assert json.loads(after.pop("railwright.io/placement"))["node"] == "gpu-3"
    assert after.items() <= tree["metadata"]["annotations"].items()


def test_the_devices_are_appended_to_the_lines_from_admission():
    policy = fabric("    nccl: {delivery: file}\n", top=SHAPES, rails="[{name: rail0}, {name: rail1}]")
    written = annotations(caches(name_pod(admitting.admitted(pod(), policy)), labels={"gpu": "a"}), policy)
    assert written["railwright.io/nccl.conf"] == "NCCL_SOCKET_IFNAME==eth0\nNCCL_IB_HCA==mlx5_0,mlx5_1\n"


def test_a_pod_that_pinned_its_shape_has_its_devices_already():
    policy = fabric(PLACE, top=SHAPES, rails="[{name: rail0}, {name: rail1}]")
    tree = admitting.admitted(pod(nodeSelector={"gpu": "b"}), policy)
    assert "railwright.io/nccl.conf" not in annotations(caches(name_pod(tree), labels={"gpu": "b"}), policy)


@pytest.mark.parametrize(("label", "by"), [(None, fabric()), ("f", None)], ids=["not opted in", "no policy"])
def test_a_pod_without_a_fabric_is_bound_without_a_warning(label, by):
    assert answer(caches(name_pod(pod(label=label))), by).keys() == {"uid", "allowed"}


def test_a_pod_with_too_many_values_is_skipped_and_bound_with_a_warning():
    known, skipped = state.State(), []
    (spec,) = [watch for watch in webhook._list_watches(known) if watch.kind is resources.PODS]
    source = reflector.Reflector(None, spec.kind, spec.sink, skipped=skipped.append)
    for tolerations, warning in ((resources.MAX_POD_VALUES + 1, "BoundPodUnknown"), (1, "BoundNodeUnknown")):
        tree = name_pod(pod(tolerations=[{}] * tolerations))
        asyncio.run(source._apply_event(msgspec.json.encode({"type": "ADDED", "object": tree})))
        (text,) = answer(known, fabric())["warnings"]
        assert warning in text
    assert skipped == ["pods"]


def test_an_unknown_pod_or_node_is_bound_with_a_warning():
    response = answer(caches(), fabric())
    assert response["allowed"]
    assert "pod prod/plain-6788d8cbb-s49hm is not known to railwright yet" in response["warnings"][0]
    known = caches(name_pod(admitting.admitted(pod(), fabric())))
    known.nodes.replace([])
    response = answer(known, fabric())
    assert response["allowed"]
    assert response["warnings"] == [
        "BoundNodeUnknown: node gpu-3 is not known to railwright yet: " + _PLACEMENT_MISSING
    ]


_PLACEMENT_MISSING = "annotation railwright.io/placement is not written"


def test_a_pod_gets_a_warning_if_the_device_list_of_its_node_is_missing():
    policy = fabric(PLACE, top=SHAPES, rails="[{name: rail0}, {name: rail1}]")
    known = caches(name_pod(admitting.admitted(pod(), policy)))
    known.nodes.replace([])
    (warning,) = answer(known, policy)["warnings"]
    assert "the node's NCCL_IB_HCA are not written, so NCCL does not start; delete the pod" in warning


def test_a_placement_that_does_not_fit_is_warned_about():
    tree = name_pod(admitting.admitted(pod(), fabric()))
    tree["metadata"]["annotations"]["x"] = "y" * 262_000
    response = answer(caches(tree), fabric())
    assert response["allowed"]
    assert "256 KiB" in response["warnings"][0]
    assert "patch" not in response


def test_a_binding_is_not_matched_with_an_earlier_pod_of_its_name():
    known = caches(name_pod(admitting.admitted(pod(), fabric()), uid="earlier"))
    assert "patch" not in answer(known, fabric())


def test_a_missing_domain_keeps_its_place_and_the_last_ones_are_not_named():
    policy = fabric(f"    placement: {{domains: [{LEAF}, {SPINE}, core]}}\n")
    tree = name_pod(admitting.admitted(pod(), policy))
    for labels, domains in (
        ({SPINE: "spine-0"}, [None, "spine-0"]),
        ({LEAF: "leaf-1", "core": "c"}, ["leaf-1", None, "c"]),
        ({LEAF: "leaf-1", SPINE: ""}, ["leaf-1"]),
        ({"x": "y"}, []),
    ):
        written = annotations(caches(tree, labels=labels), policy)
        assert json.loads(written["railwright.io/placement"])["domains"] == domains


def test_a_domain_of_every_rail_is_written_with_the_leaves_of_all_rails():
    policy = fabric("    placement: {domains: ['leaf-{rail}', core]}\n")
    labels = {"leaf-rail0": "a", "leaf-rail1": "b", "core": "c"}
    written = annotations(caches(name_pod(admitting.admitted(pod(), policy)), labels=labels), policy)
    assert json.loads(written["railwright.io/placement"])["domains"] == ["a+b", "c"]


def test_a_pod_that_the_policy_would_now_refuse_still_gets_its_placement():
    before = fabric(PLACE, top=SHAPES)
    tree = name_pod(admitting.admitted(pod(annotations={"railwright.io/rails": "rail1"}), before))
    known = caches(tree, labels={"gpu": "b", LEAF: "leaf-1"})
    renamed = fabric(PLACE, rails=admitting.RAILS.replace("rail1", "rail9"), top=SHAPES.replace("rail1", "rail9"))
    assert json.loads(annotations(known, renamed)["railwright.io/placement"]) == {
        "node": "gpu-3",
        "shape": "b",
        "rails": ["rail9"],  # by the device it requests
        "domains": ["leaf-1"],
    }
    gone = admitting.policy("apiVersion: railwright.io/v1alpha1\nfabrics: {g: {transport: tcp}}\n")
    assert json.loads(annotations(known, gone)["railwright.io/placement"]) == {
        "node": "gpu-3",
        "shape": None,
        "rails": ["rail1"],  # by its record
        "domains": [],
    }


def test_a_pod_of_a_namespace_that_opted_in_is_known_though_its_record_did_not_fit():
    policy = fabric(PLACE)
    opted_in = views.Namespace(metadata=views.ObjectMeta(name="prod", labels_or_none={"railwright.io/fabric": "f"}))
    facts = admitting.known(namespace_labels=opted_in.metadata.labels)
    tree = name_pod(admitting.admitted(pod(label=None), policy, facts))
    del tree["metadata"]["annotations"]["railwright.io/injection"]
    known = caches(tree)
    known.namespaces.upsert(opted_in)
    assert json.loads(annotations(known, policy)["railwright.io/placement"])["rails"] == ["rail0", "rail1"]


def test_an_annotation_that_changed_since_the_scheduler_took_its_copy_survives():
    policy = fabric(PLACE)
    tree = name_pod(admitting.admitted(pod(annotations=dict.fromkeys("abcdfg", "1")), policy))
    known = caches(tree)
    later = json.loads(json.dumps(tree))
    later["metadata"]["annotations"] |= dict.fromkeys("abfg", "2")
    del later["metadata"]["annotations"]["c"]
    known.pods.upsert(view(later))
    body = json.loads(CAPTURED.read_text())
    sent = tree["metadata"]["annotations"] | {"b": "2"} | dict.fromkeys("def", "scheduler's")
    del sent["g"]
    body["request"]["object"]["metadata"]["annotations"] = dict(sent)
    response = answer(known, policy, json.dumps(body).encode())
    after = jsonpatch.apply_patch(body["request"]["object"], admitting.operations(response))["metadata"]["annotations"]
    assert after.keys() == (sent.keys() | {"railwright.io/placement"}) - {"a", "c"}  # as the pod has them
    assert [after[key] for key in "bdef"] == ["2", "scheduler's", "scheduler's", "scheduler's"]


async def test_a_binding_waits_for_the_watch_to_show_its_pod():
    known = caches()
    request = bindings.read(CAPTURED.read_bytes())
    assert not await known.pods.wait(*bindings.get_pod(request), seconds=0.01)
    known.pods.upsert(view(name_pod(pod())))
    assert await known.pods.wait(*bindings.get_pod(request), seconds=0)


# --- devices of claims ---------------------------------------------------------------------------------------


CONF, PLACEMENT = "railwright.io/nccl.conf", "railwright.io/placement"
UCX = "railwright.io/ucx-net-devices"
UID = BINDING["metadata"]["uid"]
RAILS = "[{name: rail0, device: rdmap16s27, interface: net1}, {name: rail1, device: rdmap32s27}]"
BY = fabric(rails=RAILS)
NIC = "pci-0000-{}-1b-0"


def build_claiming_pod(*entries: dict, **more) -> dict:
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


def fill_caches(tree: dict, *claims: dict, slices=None, classes=(), allocatable=None) -> state.State:
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


def read_placement(known: state.State, by=BY) -> dict:
    return json.loads(annotations(known, by)[PLACEMENT])


PLACEHOLDER = "NCCL_IB_HCA==not-written-at-binding\nNCCL_NET=not-written-at-binding\n"


@pytest.mark.parametrize(
    ("entry", "tree", "claim_name"),
    [(DIRECT, claim(), "train-nics"), (BY_TEMPLATE, claim("p-nics-x7k2p", entry="nics"), "nics")],
    ids=["direct", "template"],
)
def test_the_devices_of_a_claim_are_listed_in_the_order_of_the_rails(entry, tree, claim_name):
    admitted = admitting.admitted(build_claiming_pod(entry), BY)
    assert admitted["metadata"]["annotations"][CONF] == PLACEHOLDER
    assert "NCCL_IB_HCA" not in admitting.env(admitted)
    known = fill_caches(admitted, tree)
    assert annotations(known, BY)[CONF] == "NCCL_IB_HCA==rdmap16s27,rdmap32s27\n"
    assert annotations(known, BY)[UCX] == "rdmap16s27:1,rdmap32s27:1"
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
    known = fill_caches(admitting.admitted(build_claiming_pod(DIRECT), BY), claim(nics=("a0", "20")))
    assert annotations(known, BY)[CONF] == "NCCL_IB_HCA==rdmap32s27,rdmap160s27\n"
    assert read_placement(known)["rails"] == ["rail1"]


@pytest.mark.parametrize("nics", [("10", "20"), ()])
def test_a_network_interface_without_rdma_that_the_pod_claims_beside_its_rails_does_not_count(nics):
    """Such as the class netdev.google.com beside mrdma.google.com: dranet offers both."""
    tree = claim(nics=nics)
    tree["spec"]["devices"]["requests"].append({"name": "storage", "exactly": {"deviceClassName": "dranet"}})
    result = {"request": "storage", "driver": "dra.net", "pool": "gpu-3", "device": "eth0"}
    tree["status"].setdefault("allocation", {"devices": {"results": []}})["devices"]["results"].append(result)
    tree["status"]["reservedFor"] = [{"resource": "pods", "name": "p", "uid": UID}]
    known = fill_caches(admitting.admitted(build_claiming_pod(DIRECT), BY), tree)
    assert not answer(known, BY).get("warnings")
    assert annotations(known, BY)[CONF] == "NCCL_IB_HCA==rdmap16s27,rdmap32s27\n"
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
    known = fill_caches(admitting.admitted(build_claiming_pod(DIRECT), BY), tree)
    assert [device["interface"] for device in read_placement(known)["devices"]] == ["eth7", "any"]


def test_extended_resources_of_device_classes_are_read_from_the_claim_that_the_scheduler_made():
    policy = fabric(rails=f"[{{name: rail0, resource: {devices.RAIL_RESOURCES[0]}, device: wrong}}]")
    tree = admitting.pod({"name": "c", "image": "i", "resources": {"limits": {devices.RAIL_RESOURCES[0]: "1"}}})
    known = admitting.known(extended=frozenset({devices.RAIL_RESOURCES[0]}))
    admitted = admitting.admitted(tree, policy, known)
    assert admitted["metadata"]["annotations"][CONF] == PLACEHOLDER
    held = claim("p-extended-resources-q9f", nics=("10",), extended=True)
    held["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] = "rail0"
    bound = fill_caches(admitted, held, classes=devices.CLASSES)
    assert annotations(bound, policy)[CONF] == "NCCL_IB_HCA==rdmap16s27\n"
    assert [device["rail"] for device in read_placement(bound, policy)["devices"]] == ["rail0"]
    missing = answer(fill_caches(admitted, classes=devices.CLASSES), policy)
    assert missing["warnings"][0].startswith("AllocationUnknown: the devices of extended resources are not known")
    plugin = {devices.RAIL_RESOURCES[0]: "1"}
    assert (
        annotations(fill_caches(admitted, classes=devices.CLASSES, allocatable=plugin), policy)[CONF]
        == "NCCL_IB_HCA==wrong\n"
    )


def test_without_an_allocation_the_pod_is_bound_and_its_file_still_names_no_device():
    admitted = admitting.admitted(build_claiming_pod(DIRECT), BY)
    unallocated = claim(nics=())
    for known in (fill_caches(admitted), fill_caches(admitted, unallocated)):
        response = answer(known, BY)
        assert response["allowed"]
        (warning,) = response["warnings"]
        assert warning == (
            "AllocationUnknown: the devices of nics are not known to railwright yet, so NCCL_IB_HCA names none and "
            "NCCL does not start; delete the pod so that it is bound again"
        )
        assert annotations(known, BY).keys().isdisjoint({CONF, UCX})
        assert "devices" not in read_placement(known)


def test_a_claim_that_is_reserved_for_another_pod_does_not_count():
    tree = claim()
    tree["status"]["reservedFor"][0]["uid"] = tree["metadata"]["ownerReferences"][0]["uid"] = "other"
    assert (
        "AllocationUnknown"
        in answer(fill_caches(admitting.admitted(build_claiming_pod(DIRECT), BY), tree), BY)["warnings"][0]
    )


def test_a_device_that_no_slice_names_leaves_the_list_unwritten():
    for slices in ([], devices.build_slices("gpu-3", without=[NIC.format("20")])):
        known = fill_caches(admitting.admitted(build_claiming_pod(DIRECT), BY), claim(), slices=slices)
        (warning,) = answer(known, BY)["warnings"]
        assert warning.startswith("AllocatedDevicesUnnamed: no ResourceSlice names the RDMA device of pci-0000-")
        assert "(train-nics/nic0)" in warning
        assert CONF not in annotations(known, BY)


def test_claims_that_hold_no_nic_leave_the_list_to_the_policy():
    tree = devices.build_claim(
        "train-nics", {"gpu": "gpu.nvidia.com"}, pod_uid=UID, allocated=[("gpu.nvidia.com", "gpu-3", "gpu-0")]
    )
    tree["metadata"]["namespace"] = "prod"
    known = fill_caches(admitting.admitted(build_claiming_pod(DIRECT), BY), tree)
    assert annotations(known, BY)[CONF] == "NCCL_IB_HCA==rdmap16s27,rdmap32s27\n"
    assert "devices" not in read_placement(known)


def test_a_warning_becomes_an_event_of_the_pod_except_on_a_dry_run():
    admitted = admitting.admitted(build_claiming_pod(DIRECT), BY)
    request = bindings.read(CAPTURED.read_bytes())
    (event,) = bindings.handle(request, BY, fill_caches(admitted)).events
    assert (event.owner.kind, event.owner.uid, event.namespace) == ("Pod", UID, "prod")
    assert event.messages[0].startswith("AllocationUnknown: ")
    dry = msgspec.structs.replace(request, dry_run=True)
    assert bindings.handle(dry, BY, fill_caches(admitted)).events == ()


async def test_a_binding_waits_for_an_allocation_that_comes_late():
    known = fill_caches(admitting.admitted(build_claiming_pod(DIRECT), BY))
    (route,) = [
        row for row in app.build_routes(known, lambda: BY, metrics.Metrics("webhook")) if row.path == "/mutate/bindings"
    ]
    task = asyncio.create_task(route.handle(routes.Call(CAPTURED.read_bytes(), {}, {}, {}, "")))
    await asyncio.sleep(0.05)
    assert not task.done()
    known.devices.claims.upsert(read_claims(claim())[0])
    reply = await asyncio.wait_for(task, 60)
    assert b"patch" in reply.body
