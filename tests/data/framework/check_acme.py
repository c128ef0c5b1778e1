"""Tests of a tree that has the framework of acme.py; tests/unit/workloads/test_new_framework.py runs them there."""

import admitting
import msgspec
import pytest
import working

from extender import state as states
from railwright.cli import linted_workloads as linted
from railwright.cli.explanation import templates as explained
from railwright.cluster import snapshots
from railwright.fabric.injection import context
from railwright.fabric.workloads import membership, registry
from webhook import response_cache

POLICY = admitting.fabric()
MISSION = registry.find_injected("acme.example", "v1", "Mission")
LABELS = {"acme.example/job": "moon", "acme.example/role": "flyer"}


def mission() -> dict:
    template = working.build_template(admitting.gpus(8))
    launcher = working.build_template(admitting.cpu())
    teams = [{"name": "pilot", "template": launcher}, {"name": "flyer", "replicas": 4, "template": template}]
    metadata = {"name": "moon", "namespace": "prod", "uid": "u", "labels": {"railwright.io/fabric": "f"}}
    return {"apiVersion": "acme.example/v1", "kind": "Mission", "metadata": metadata, "spec": {"teams": teams}}


def pods() -> list[dict]:
    """Return the pods that explain shows, the pilot first."""
    return [template.pod for template in explained.expand(mission(), "prod")]


def test_admission_gives_devices_to_the_templates_of_ranks_only():
    response = working.get_response(working.review(MISSION, mission(), "v1"), POLICY)
    assert response["allowed"]
    patched = working.apply_patch(MISSION, mission(), POLICY)
    limits = [
        team["template"]["spec"]["containers"][0].get("resources", {}).get("limits", {})
        for team in patched["spec"]["teams"]
    ]
    assert ["nvidia.com/mlx5_0" in limit for limit in limits] == [False, True]


def test_the_role_label_decides_the_role_of_a_pod():
    views = [admitting.decode_pod(pod) for pod in pods()]
    assert [context.find_role(pod, accelerated=False).name for pod in views] == ["launcher", "excluded"]
    assert [admitting.plan_pod(pod, POLICY).rails for pod in pods()] == [(), ("rail0", "rail1")]


def test_pods_are_one_gang_in_the_order_of_their_index():
    labels = [LABELS | {"acme.example/index": str(index)} for index in (10, 9)]
    views = [
        admitting.decode_pod({"metadata": {"name": "x", "namespace": "prod", "labels": label}}) for label in labels
    ]
    assert {membership.find_gang(pod) for pod in views} == {"prod/mission/moon"}
    assert [membership.find_rank(pod).index for pod in views] == [10, 9]


def test_the_size_comes_from_a_watch_and_from_a_snapshot():
    state = states.State()
    (watch,) = [watch for watch in states.list_watches(state) if watch.kind.snapshot_kind == "Mission.acme.example"]
    assert (watch.kind.name, watch.kind.path) == ("missions.acme.example", "/apis/acme.example/v1/missions")
    assert watch.kind.optional
    watch.sink.replace(snapshots.read(msgspec.json.encode(mission()).decode())["Mission.acme.example"])
    (gang,) = {membership.find_gang(admitting.decode_pod(pod)) for pod in pods()}
    assert state.cluster.get_gang_size(gang, observed=1) == 5


def test_explain_shows_the_pods_as_the_controller_creates_them():
    shown = [
        (template.part, template.pods, template.pod["metadata"]["name"])
        for template in explained.expand(mission(), "prod")
    ]
    assert shown == [("team pilot", 1, "moon-pilot-0"), ("team flyer", 4, "moon-flyer-0")]
    labels = LABELS | {"railwright.io/fabric": "f", "acme.example/index": "0"}
    assert pods()[1]["metadata"]["labels"] == labels


def test_lint_finds_its_templates():
    assert [template.part for template in linted.read_templates(mission())] == ["pilot", "flyer"]


@pytest.mark.parametrize(("label", "same"), [("acme.example/index", True), ("acme.example/role", False)])
def test_pods_that_differ_by_their_index_share_a_plan(label, same):
    def key(value: str) -> bytes | None:
        pod = {"metadata": {"namespace": "prod", "labels": LABELS | {label: value}}, "spec": {}}
        return response_cache.ResponseCache().build_entry(
            admitting.decode_pod(pod), 1, POLICY, admitting.build_facts(version=1)
        )

    assert (key("1") == key("2")) == same
