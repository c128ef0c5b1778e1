"""Opt-in, and the messages for invalid requests (docs/interface.md 1)."""

import admitting
import pytest
from admitting import LAUNCHER, build_facts, cpu, fabric, get_refusal, gpus, plan_pod, pod

from railwright.fabric.injection import plan

LABEL = "railwright.io/fabric"


def test_label_none_opts_out_even_where_the_namespace_opts_in():
    assert plan_pod(pod(label="none"), fabric(), build_facts(namespace_labels={LABEL: "f"})) == plan.NotOptedIn()


def test_the_namespace_opts_in_pods_with_an_accelerator_in_an_app_container():
    at = build_facts(namespace_labels={LABEL: "f"})
    assert isinstance(plan_pod(pod(label=None), fabric(), at), plan.Injection)
    assert plan_pod(pod(cpu(), label=None), fabric(), at) == plan.NotOptedIn()
    init_only = pod(cpu(), label=None, initContainers=[gpus(1, "init")])
    assert plan_pod(init_only, fabric(), at) == plan.NotOptedIn()
    assert plan_pod(pod(gpus(0), label=None), fabric(), at) == plan.NotOptedIn()


def test_an_unknown_fabric_in_a_namespace_label_rejects_only_training_pods():
    at = build_facts(namespace_labels={LABEL: "nope"})
    assert plan_pod(pod(cpu(), label=None), fabric(), at) == plan.NotOptedIn()
    assert "label railwright.io/fabric of namespace prod 'nope'" in get_refusal(pod(label=None), fabric(), at)


FEWER = {
    "1": ("rail0",),
    "r-1": ("r-1",),
    "r-1, rail0,r-1": ("rail0", "r-1"),
    "rail0-r-1": ("rail0", "r-1"),
    "r-1-r-2": ("r-1", "r-2"),
}


def test_a_pod_requests_fewer_rails_by_count_or_names_or_range():
    policy = fabric(rails="[{name: rail0}, {name: r-1}, {name: r-2}]")
    given = {asked: plan_pod(pod(annotations={"railwright.io/rails": asked}), policy).rails for asked in FEWER}
    assert given == FEWER


def test_a_rail_that_the_fabric_does_not_have_is_refused_on_a_pod_without_rails_too():
    tree = pod(cpu(), labels=LAUNCHER, annotations={"railwright.io/rails": "rail9"})
    assert "'rail9' is not a rail" in get_refusal(tree, fabric())


def test_the_rails_annotation_is_ignored_in_a_fabric_over_tcp():
    tree = pod(annotations={"railwright.io/rails": "rail0"})
    assert plan_pod(tree, fabric(transport="tcp", rails="")).rails == ()


TEAM, NAMED = "team: ai", "kubernetes.io/metadata.name: prod"


@pytest.mark.parametrize(
    ("selector", "namespace", "labels", "problem"),
    [
        (TEAM, "prod", {"team": "ai"}, ""),
        (TEAM, "prod", {"team": "web"}, "may not be used in namespace prod"),
        (TEAM, "prod", None, "not known yet"),
        (NAMED, "prod", {"team": "ai"}, ""),
        (NAMED, "prod", None, ""),  # the name is known without the labels
        (NAMED, "web", {}, "may not be used in namespace web"),
        (f"{TEAM}, {NAMED}", "prod", {"team": "ai"}, ""),
        (f"{TEAM}, {NAMED}", "web", {"team": "ai"}, "may not be used in namespace web"),
        (f"{TEAM}, {NAMED}", "prod", None, "not known yet"),
    ],
)
def test_a_fabric_is_limited_to_the_namespaces_with_all_its_labels(selector, namespace, labels, problem):
    policy = fabric(f"    namespaces: {{{selector}}}\n")
    at = build_facts(namespace, namespace_labels=labels, watched=True)
    if problem:
        assert problem in get_refusal(pod(), policy, at)
    else:
        assert isinstance(plan_pod(pod(), policy, at), plan.Injection)


def test_a_forged_record_does_not_affect_admission():
    forged = '{"fabric":"g","rails":[],"added":["networks","devices"]}'
    tree = admitting.admit_pod(pod(annotations={"railwright.io/injection": forged}), fabric())
    assert tree == admitting.admit_pod(pod(annotations={}), fabric())
