"""Annotations that are written when a pod is bound."""

import asyncio
import json

import admitting
import jsonpatch
import msgspec
import pytest
from admitting import SHAPES, fabric, pod, view

from railwright.cluster import reflector, resources
from railwright.fabric import hypernodes, node_views, views
from webhook import __main__ as webhook
from webhook import bindings, state

LEAF, SPINE = "fabric.topograph.run/tier-0", "fabric.topograph.run/tier-1"
PLACE = f"    placement: {{domains: [{LEAF}, {SPINE}]}}\n"
CAPTURED = admitting.WIRE / "admission-bindings-admin.json"


def caches(*pods: dict, labels: dict | None = None) -> state.State:
    known = state.State()
    node = {"metadata": {"name": "gpu-3", "labels": labels or {LEAF: "leaf-1", SPINE: "spine-0"}}}
    known.nodes.replace([msgspec.convert(node, node_views.Node)])
    known.pods.replace([view(tree) for tree in pods])
    return known


def name_pod(tree: dict, uid: str | None = None) -> dict:
    """Return the pod that the captured Binding binds."""
    metadata = json.loads(CAPTURED.read_text())["request"]["object"]["metadata"]
    tree["metadata"] |= {"name": metadata["name"], "namespace": "prod", "uid": uid or metadata["uid"]}
    return tree


def answer(known: state.State, by, body: bytes | None = None) -> dict:
    request = bindings.read(body or CAPTURED.read_bytes())
    return json.loads(bindings.handle(request, by, known).body)["response"]


def annotations(known: state.State, by) -> dict:
    response = answer(known, by)
    assert response["allowed"]
    bound = json.loads(CAPTURED.read_text())["request"]["object"]
    return jsonpatch.apply_patch(bound, admitting.operations(response))["metadata"].get("annotations", {})


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
    gone = admitting.policy("apiVersion: railwright.io/v1alpha1\nkind: FabricPolicy\nfabrics: {g: {transport: tcp}}\n")
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
