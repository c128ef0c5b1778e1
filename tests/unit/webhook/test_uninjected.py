"""Opted-in pods that were not injected are seen, whatever brought them there; pods that are well are not."""

import admitting
import missed_pods
import pytest

from railwright.cluster import resources
from railwright.fabric import names
from railwright.fabric.injection import missed
from railwright.serving import metrics
from webhook import __main__ as webhook
from webhook import state
from webhook import state as states


def see(*trees: dict, by=None, namespaces=None):
    counter = state.Uninjected()
    for number, tree in enumerate(trees):
        tree["metadata"].setdefault("name", f"p-{number}")
        tree["metadata"]["name"] += f"-{number}"
        counter.upsert(admitting.view(tree))
    return counter.count(by or admitting.fabric(), (namespaces or {}).get)


def phase(tree: dict, value: str) -> dict:
    return {**tree, "status": {"phase": value}}


def inject(tree: dict) -> dict:
    return admitting.admitted(tree, admitting.fabric())


def add_labels(tree: dict, **labels: str) -> dict:
    tree["metadata"].setdefault("labels", {}).update(labels)
    return tree


@pytest.mark.parametrize(
    "tree",
    [
        inject(admitting.pod()),
        inject(admitting.pod(label="default")),
        inject(add_labels(admitting.pod(admitting.cpu()), **{"training.kubeflow.org/job-role": "launcher"})),
        phase(admitting.pod(), "Succeeded"),
        phase(admitting.pod(), "Failed"),
        admitting.pod(label="none"),
        admitting.pod(label=None),
        admitting.pod(admitting.cpu(), label=None),
    ],
    ids=["injected", "by default", "a launcher", "succeeded", "failed", "opted out", "no label", "no accelerator"],
)
def test_a_pod_that_is_well_or_has_ended_is_not_counted(tree):
    assert see(tree) == {"f": 0, "unknown": 0}


@pytest.mark.parametrize(("label", "fabric"), [("f", "f"), ("default", "f"), ("gone", "unknown"), ("", "unknown")])
def test_a_labelled_pod_without_a_record_is_counted_under_its_fabric(label, fabric):
    assert see(phase(admitting.pod(label=label), "Running"))[fabric] == 1


def test_uninjected_pods_are_counted_by_the_current_label_of_the_namespace():
    counter = state.Uninjected()
    counter.upsert(admitting.view(admitting.pod(label=None)))
    for labels, expected in (({}, 0), ({names.FABRIC: "f"}, 1), ({names.FABRIC: "none"}, 0)):
        assert counter.count(admitting.fabric(), {"prod": labels}.get)["f"] == expected


def test_the_own_label_wins_over_the_namespaces():
    assert see(admitting.pod(label="none"), namespaces={"prod": {names.FABRIC: "f"}}) == {"f": 0, "unknown": 0}


def test_a_pod_leaves_the_count_when_it_ends_is_gone_or_gets_its_record():
    counter = state.Uninjected()

    def now() -> int:
        return counter.count(admitting.fabric(), {}.get)["f"]

    for leave in (
        lambda: counter.upsert(admitting.view(phase(admitting.pod(), "Succeeded"))),
        lambda: counter.upsert(admitting.view(inject(admitting.pod()))),
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


@pytest.mark.parametrize(("resource", "amount"), [("example.com/fuse", "1"), ("nvidia.com/gpu", "0")])
def test_a_namespaces_label_is_not_about_pods_that_ask_for_no_accelerator(resource, amount):
    container = admitting.cpu(resources={"requests": {resource: amount}, "limits": {resource: amount}})
    assert see(admitting.pod(container, label=None), namespaces={"prod": {names.FABRIC: "f"}})["f"] == 0


@pytest.mark.parametrize("name", missed_pods.CASES)
def test_the_metric_counts_the_shared_cases_of_missed_pods(name):
    case = missed_pods.CASES[name]
    counter, shown = state.Uninjected(), metrics.Metrics("webhook")
    counter.upsert(admitting.view(missed_pods.pod(case)))
    labels = {case.namespace: case.namespace_labels}
    shown.show_uninjected(counter.count(admitting.fabric(), labels.get, missed.ALWAYS_EXCLUDED | case.excluded))
    fabric = {None: None, "f": "f", "default": "f"}.get(case.label, "unknown")
    for fabric_name in ("f", "unknown"):
        value = shown.registry.get_sample_value("railwright_uninjected_pods", {"fabric": fabric_name})
        assert value == (fabric_name == fabric), fabric_name


def test_a_pod_leaves_the_count_once_it_is_being_deleted():
    counter = state.Uninjected()
    tree = admitting.pod()
    counter.upsert(admitting.view(tree))
    assert counter.count(admitting.fabric(), {}.get)["f"] == 1
    tree["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    counter.upsert(admitting.view(tree))
    assert counter.count(admitting.fabric(), {}.get)["f"] == 0


def test_a_running_pod_without_a_record_is_counted_as_the_servers_watch_brings_it():
    known = states.State()
    (watched,) = [watch for watch in webhook._list_watches(known) if watch.kind is resources.PODS]
    tree = phase(admitting.pod(), "Running")
    tree["spec"]["nodeName"] = "n"
    watched.sink.upsert(watched.excerpt(admitting.view(tree)))
    assert known.pods.uninjected.count(admitting.fabric(), known.get_labels)["f"] == 1
