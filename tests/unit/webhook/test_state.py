"""The stored state of the cluster, and its effect on a decision."""

import admitting
import missed_pods
import msgspec

from railwright.cluster import resources, snapshots
from railwright.fabric import names, node_views, views
from railwright.fabric.injection import opt_in
from railwright.serving import metrics
from webhook import __main__ as webhook
from webhook import state


def node(name: str, **allocatable: str) -> node_views.Node:
    offers = {f"x.y/{key}": amount for key, amount in allocatable.items()}
    return msgspec.convert({"metadata": {"name": name}, "status": {"allocatable": offers}}, node_views.Node)


def network(name: str, resource: str | None = None) -> views.NetworkAttachmentDefinition:
    annotations = {"k8s.v1.cni.cncf.io/resourceName": resource} if resource else None
    metadata = {"name": name, "namespace": "prod", "annotations": annotations}
    return msgspec.convert({"metadata": metadata}, views.NetworkAttachmentDefinition)


def test_nothing_is_known_before_a_source_has_listed_all():
    known = state.State()
    known.networks.upsert(network("a"))
    known.nodes.upsert(node("n", a="1"))
    facts = known.build_facts("prod")
    assert (facts.namespace_labels, facts.networks, facts.offered) == (None, None, None)


def test_a_resource_is_offered_while_some_node_has_any_of_it():
    known = state.State()
    known.nodes.replace([node("a", r="1"), node("b", r="2", s="0")])
    assert known.build_facts("x").offered == {"x.y/r"}
    known.nodes.upsert(node("b", s="1"))
    assert known.build_facts("x").offered == {"x.y/r", "x.y/s"}
    known.nodes.remove(node("a"))
    assert known.build_facts("x").offered == {"x.y/s"}


def test_networks_bring_the_resource_they_draw_on():
    known = state.State()
    known.networks.replace([network("a", "x.y/vf"), network("b")])
    assert known.build_facts("prod").networks == {("prod", "a"): "x.y/vf", ("prod", "b"): None}
    known.networks.remove(network("a"))
    known.networks.upsert(network("b", "x.y/vf"))
    assert known.build_facts("prod").networks == {("prod", "b"): "x.y/vf"}


def test_labels_of_namespaces_are_followed():
    known = state.State()
    known.namespaces.replace([msgspec.convert({"metadata": {"name": "a", "labels": {"x": "1"}}}, views.Namespace)])
    assert known.build_facts("a").namespace_labels == {"x": "1"}
    assert known.build_facts("b").namespace_labels is None
    known.namespaces.upsert(msgspec.convert({"metadata": {"name": "a"}}, views.Namespace))
    assert known.build_facts("a").namespace_labels == {}
    known.namespaces.remove(msgspec.convert({"metadata": {"name": "a"}}, views.Namespace))
    assert known.build_facts("a").namespace_labels is None


def test_only_pods_that_may_have_opted_in_are_stored():
    known = state.State()
    mine = {"name": "m", "namespace": "a", "uid": "1", "labels": {"railwright.io/fabric": "f"}}
    other = {"name": "o", "namespace": "a", "uid": "2"}
    known.pods.replace([msgspec.convert({"metadata": metadata}, views.Pod) for metadata in (mine, other)])
    assert len(known.pods) == 1
    assert known.pods.find("a", "m", "1") is not None
    assert known.pods.find("a", "m", "") is not None
    assert known.pods.find("a", "m", "other") is None
    assert known.pods.find("a", "o", "2") is None
    assert known.pods.has_pod("a", "o", "2")
    assert not known.pods.has_pod("a", "o", "3")
    known.pods.remove(msgspec.convert({"metadata": mine}, views.Pod))
    assert not known.pods.has_pod("a", "m", "1")


def pending(uid: str = "1", containers: list | None = None, node: str | None = None, **annotations: str) -> views.Pod:
    metadata = {"name": "p", "namespace": "a", "uid": uid, "annotations": annotations}
    spec = {"containers": containers or [], "nodeName": node or ""}
    return msgspec.convert({"metadata": metadata, "spec": spec}, views.Pod)


RAIL = [{"name": "c", "resources": {"limits": {"x.y/vf": "1"}}}]


def test_a_pod_is_kept_for_its_devices_until_it_is_bound():
    known = state.State()
    known.pods.upsert(pending(containers=RAIL))
    assert known.pods.find("a", "p", "1") is not None
    known.pods.upsert(pending(containers=RAIL, node="n"))
    assert known.pods.find("a", "p", "1") is None
    assert known.pods.has_pod("a", "p", "1")
    assert len(known.pods) == 0
    known.pods.upsert(pending(containers=[{"name": "c", "resources": {"limits": {"cpu": "1"}}}]))
    assert len(known.pods) == 0


def test_the_earlier_value_of_an_annotation_is_remembered_for_the_pod():
    known = state.State()
    known.pods.upsert(pending(containers=RAIL, k="1", same="x"))
    known.pods.upsert(pending(containers=RAIL, k="2", same="x"))
    known.pods.upsert(pending(containers=RAIL, same="x"))
    known.pods.replace([pending(containers=RAIL, same="x")])
    assert known.pods.find("a", "p", "1").outdated == {"k": {"1", "2"}}
    known.pods.upsert(pending("2", containers=RAIL, same="y"))
    assert known.pods.find("a", "p", "2").outdated == {}


def phase(tree: dict, value: str) -> dict:
    return {**tree, "status": {"phase": value}}


def end(tree: dict) -> dict:
    """Return a pod that is being deleted."""
    return {**tree, "metadata": {**tree["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}


def inject(tree: dict) -> dict:
    return admitting.admitted(tree, admitting.fabric())


def test_uninjected_pods_are_counted_by_the_current_label_of_the_namespace():
    counter = state.Uninjected()
    counter.upsert(admitting.view(admitting.pod(label=None)))
    for labels, expected in (({}, 0), ({names.FABRIC: "f"}, 1), ({names.FABRIC: "none"}, 0)):
        assert counter.count(admitting.fabric(), {"prod": labels}.get)["f"] == expected


def test_a_pod_leaves_the_count_when_it_ends_is_gone_or_gets_its_record():
    counter = state.Uninjected()

    def now() -> int:
        return counter.count(admitting.fabric(), {}.get)["f"]

    for leave in (
        lambda: counter.upsert(admitting.view(phase(admitting.pod(), "Succeeded"))),
        lambda: counter.upsert(admitting.view(inject(admitting.pod()))),
        lambda: counter.upsert(admitting.view(end(admitting.pod()))),
        lambda: counter.remove("prod", "p"),
        counter.clear,
    ):
        counter.upsert(admitting.view(admitting.pod()))
        counter.upsert(admitting.view(admitting.pod()))
        assert now() == 1
        leave()
        assert now() == 0


def test_before_a_policy_every_label_is_unknown():
    counter = state.Uninjected()
    counter.upsert(admitting.view(admitting.pod()))
    assert counter.count(None, {}.get) == {"unknown": 1}


def test_the_metric_counts_the_shared_cases_of_missed_pods():
    for name, case in missed_pods.CASES.items():
        counter, shown = state.Uninjected(), metrics.Metrics("webhook")
        counter.upsert(admitting.view(missed_pods.pod(case)))
        labels = {case.namespace: case.namespace_labels}
        shown.show_uninjected(counter.count(admitting.fabric(), labels.get, opt_in.ALWAYS_EXCLUDED | case.excluded))
        fabric = {None: None, "f": "f", "default": "f"}.get(case.label, "unknown")
        for fabric_name in ("f", "unknown"):
            value = shown.registry.get_sample_value("railwright_uninjected_pods", {"fabric": fabric_name})
            assert value == (fabric_name == fabric), (name, fabric_name)


def test_a_running_pod_without_a_record_is_counted_as_the_servers_watch_brings_it():
    known = state.State()
    (watched,) = [watch for watch in webhook._list_watches(known) if watch.kind is resources.PODS]
    tree = phase(admitting.pod(), "Running")
    tree["spec"]["nodeName"] = "n"
    watched.sink.upsert(watched.excerpt(admitting.view(tree)))
    assert known.pods.uninjected.count(admitting.fabric(), known.get_labels)["f"] == 1


def test_a_snapshot_may_hold_every_kind_that_is_watched():
    watched = {watch.kind.snapshot_kind for watch in webhook._list_watches(state.State())}
    assert watched <= snapshots.KINDS.keys()
