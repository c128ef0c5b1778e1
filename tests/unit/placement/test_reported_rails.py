"""Tests what new pods and gangs get of nodes whose rails are reported not to work."""

import msgspec
import placing
import pytest
import reporting
from reporting import CHAR_DEVICE, STATE, condition, issm_missing, port_down
from wording import text

from railwright.fabric.placement import engine
from railwright.fabric.policy import model
from railwright.fabric.reasons import rendering

ALL = {CHAR_DEVICE: "avoid", STATE: "exclude"}


def decide(known, by, *, size=1, name="job-worker-0"):
    known.state.upsert_pod_group(placing.build_pod_group("train", "gang", size))
    request = placing.build_request(placing.pod(name, group="gang"), list(known.state.nodes), by)
    return placing.score_once(request, known.state)


def reported(kind, entry, *, required=False, on=("a-00",), leaves=None):
    by = reporting.policy(required=required)
    known = reporting.ReportedCluster(placing.leaves(**(leaves or {"a": 2})), by)
    for name in on:
        known.report(name, condition(kind, entry))
    return known, by


def test_a_required_rail_that_is_excluded_refuses_the_node_and_not_the_others():
    known, by = reported(STATE, port_down("mlx5_3"), required=True)
    nodes = placing.explain(decide(known, by))
    assert text(nodes["a-00"].refusal) == "InfiniBandStateCheck reports that rail3 does not work"
    assert nodes["a-00"].is_unresolvable
    assert nodes["a-01"].refusal is None


def test_pods_that_do_not_need_the_rail_still_get_the_node():
    known, by = reported(STATE, port_down("mlx5_3"), required=True)
    two_rails = placing.build_pod_with("p", {placing.GPU: "4", **dict.fromkeys(placing.RESOURCES[:2], "1")})
    two_rails.metadata.labels["railwright.io/fabric"] = "roce"
    request = placing.build_request(two_rails, list(known.state.nodes), by)
    nodes = placing.explain(placing.score_once(request, known.state))
    assert {node.refusal for node in nodes.values()} == {None}
    assert nodes["a-00"].score == nodes["a-01"].score


@pytest.mark.parametrize(("kind", "entry"), [(STATE, port_down("mlx5_3")), (CHAR_DEVICE, issm_missing("mlx5_3"))])
def test_a_gang_avoids_the_node_where_others_are_there_and_takes_it_where_none_is(kind, entry):
    known, by = reported(kind, entry, leaves={"a": 4, "b": 3}, on=("a-01",))
    decision = decide(known, by, size=3)
    assert decision.plan.bandwidth == 1.0
    nodes = placing.explain(decision)
    assert nodes["a-01"].refusal is None
    best = max(node.score for node in nodes.values())
    assert nodes["a-01"].score < best
    whole = decide(known, by, size=7)
    assert whole.plan.is_complete
    assert whole.plan.bandwidth < 1.0


def without_resources(policy, *, count=4):
    """Return the policy with this number of rails that no device counts, such as those of a host network."""
    fabric = policy.document.fabrics["roce"]
    rails = [msgspec.structs.replace(rail, resource=None) for rail in fabric.rails[:count]] + [*fabric.rails[count:]]
    fabrics = {"roce": msgspec.structs.replace(fabric, rails=tuple(rails))}
    return model.Policy(msgspec.structs.replace(policy.document, fabrics=fabrics), digest=f"sha256:{count}")


@pytest.mark.parametrize("count", [1, 4], ids=["beside counted rails", "all rails"])
@pytest.mark.parametrize(("kind", "entry"), [(STATE, port_down("mlx5_0")), (CHAR_DEVICE, issm_missing("mlx5_0"))])
def test_a_gang_avoids_a_reported_rail_without_a_resource(count, kind, entry):
    by = without_resources(reporting.policy(), count=count)
    known = reporting.ReportedCluster(placing.leaves(a=4, b=3), by)
    assert [leaf for leaf, *_ in decide(known, by, size=3).plan.leaves] == ["b"]
    known.report("b-01", condition(kind, entry))
    decision = decide(known, by, size=3)
    assert [leaf for leaf, *_ in decision.plan.leaves] == ["a"]
    assert decision.plan.bandwidth == 1.0
    assert decide(known, by, size=7).plan.bandwidth == pytest.approx(0.75 if kind == STATE else 0.875)


def test_a_required_rail_without_a_resource_refuses_the_node_if_it_is_excluded():
    by = without_resources(reporting.policy(required=True))
    known = reporting.ReportedCluster(placing.leaves(a=2), by)
    known.report("a-00", condition(STATE, port_down("mlx5_3")))
    nodes = placing.explain(decide(known, by))
    assert text(nodes["a-00"].refusal) == "InfiniBandStateCheck reports that rail3 does not work"
    assert nodes["a-01"].refusal is None
    one_rail = placing.pod("p", annotations={"railwright.io/rails": "rail0"}, rails=0)
    request = placing.build_request(one_rail, list(known.state.nodes), by)
    assert {node.refusal for node in placing.explain(placing.score_once(request, known.state)).values()} == {None}


def test_a_false_report_on_every_node_costs_no_pod_its_place():
    known, by = reported(CHAR_DEVICE, issm_missing("mlx5_3"), on=("a-00", "a-01"), required=True)
    decision = decide(known, by, size=2)
    assert decision.plan.is_complete
    assert {node.refusal for node in placing.explain(decision).values()} == {None}


def test_the_reason_names_the_source_and_the_explanation_since_when():
    known, by = reported(STATE, port_down("mlx5_3"))
    decision = decide(known, by)
    row = next(row for row in decision.rows if row.node == "a-00")
    entry = decision.explainer.describe(row)
    assert "degradations" not in entry
    [message] = entry["reports"]
    assert message.message == (
        "InfiniBandStateCheck reports rail3 since 2026-08-12T23:00:02Z: NIC:mlx5_3 NICPort:1 Port mlx5_3 port 1: "
        "state DOWN, phys_state Disabled Recommended Action=REPLACE_VM (exclude)"
    )
    assert message.parameters["held"] is False
    rails = placing.explain(decision)["a-00"].terms["rails"]
    assert rendering.render(rails.reason).startswith("3 of 4")


def test_nodes_with_the_same_report_are_of_one_class_whenever_it_was_made():
    known, by = reported(STATE, port_down("mlx5_3"), leaves={"a": 8}, on=[f"a-0{number}" for number in range(8)])
    request = placing.build_request(placing.pod("p"), list(known.state.nodes), by)
    index = engine.PlacementEngine(known.state, placing.create_assumed_pods()).get_index(request)
    known.report("a-00", condition(STATE, port_down("mlx5_3")) | {"lastTransitionTime": "2026-08-13T00:00:00Z"})
    index.refresh()
    assert len(set(index.class_of_node.values())) == 1


def test_a_plan_is_made_again_after_the_event():
    known, by = reported(STATE, port_down("mlx5_3"), leaves={"a": 3, "b": 3}, on=())
    known.state.upsert_pod_group(placing.build_pod_group("train", "gang", 3))
    engine_of_gang = placing.RememberingEngine(known.state, placing.create_assumed_pods())
    request = placing.build_request(placing.pod("job-worker-0", group="gang"), list(known.state.nodes), by)
    [leaf] = engine_of_gang.score(request).plan.leaves
    name = next(iter(engine_of_gang.get_index(request).nodes_by_leaf[leaf]))
    known.report(name, condition(STATE, port_down("mlx5_3")))
    [other] = engine_of_gang.score(request).plan.leaves
    assert other != leaf
