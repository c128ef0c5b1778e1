"""The topology of gangs that Volcano places: its Job's field, and the annotations of other controllers' pods."""

import copy
import json

import admitting
import jsonpatch
import msgspec
import pytest
import working
from topology_reviews import create, node, read_topology, review

from railwright.fabric import hypernodes
from webhook import state

VOLCANO, JOB, SET = map(working.kind, ("Job.batch.volcano.sh", "Job.batch", "StatefulSet.apps"))
MODE, TIER = "volcano.sh/network-topology-mode", "volcano.sh/network-topology-highest-tier"
LEAST = "scheduling.volcano.sh/group-min-member"
TOPOLOGY = "railwright.io/topology"


def ask(mode="required"):
    return admitting.fabric(f"    placement: {{preset: volcano, gangTopology: {mode}}}\n")


def hyper_node(name, tier, *members):
    kind = "Node" if tier < 5 else "HyperNode"
    listed = [{"type": kind, "selector": {"exactMatch": {"name": member}}} for member in members]
    return msgspec.convert(
        {"metadata": {"name": name}, "spec": {"tier": tier, "members": listed}}, hypernodes.HyperNode
    )


def cluster(**leaves):
    """Return nodes in HyperNodes of tier 1, all in one HyperNode of tier 5."""
    known = state.State()
    members = {leaf: [f"{leaf}-{i}" for i in range(count)] for leaf, count in leaves.items()}
    known.nodes.replace([node(name, leaf) for leaf, named in members.items() for name in named])
    tiers = [hyper_node(leaf, 1, *named) for leaf, named in members.items()]
    known.hyper_nodes.replace([*tiers, hyper_node("top", 5, *members)] if tiers else [])
    return known.build_topology_facts()


def volcano_job(pods=4, *, more_tasks=(), **spec):
    tree = working.workload(VOLCANO, working.template(label="f"), **spec)
    tree["spec"]["tasks"][0]["replicas"] = pods
    tree["spec"]["tasks"] += more_tasks
    return tree


def other(row, least=None, /, completions=None, **template):
    """Return a workload of 4 pods. `least` is the author's number of pods that start together."""
    spec = {"parallelism": 4, "completions": completions} if row is JOB else {"replicas": 4}
    tree = working.workload(row, working.template(label="f", schedulerName="volcano", **template), **spec)
    if least is not None:
        tree["metadata"]["annotations"] = {LEAST: least}
    return tree


def test_a_hard_constraint_names_the_lowest_tier_that_holds_the_gang():
    stored, _ = create(volcano_job(4), ask(), cluster(a=3, b=4), VOLCANO)
    assert stored["spec"]["networkTopology"] == {"mode": "hard", "highestTierAllowed": 1}
    assert read_topology(stored["spec"]["tasks"][0])["level"] == "hypernode/level-1"
    higher, _ = create(volcano_job(6), ask(), cluster(a=3, b=4), VOLCANO)
    assert higher["spec"]["networkTopology"] == {"mode": "hard", "highestTierAllowed": 5}


def test_a_soft_constraint_has_no_tier():
    stored, _ = create(volcano_job(40), ask("preferred"), cluster(a=3), VOLCANO)
    assert stored["spec"]["networkTopology"] == {"mode": "soft"}


@pytest.mark.parametrize("mode", ["required", "preferred"])
def test_without_hyper_nodes_nothing_is_written(mode):
    """Volcano schedules no job with a topology until there are some."""
    stored, _ = create(volcano_job(4), ask(mode), cluster(), VOLCANO)
    assert "networkTopology" not in stored["spec"]
    assert read_topology(stored["spec"]["tasks"][0])["reason"]["code"] == "TopologyNoKey"


def launcher(**spec):
    template = working.template(admitting.cpu(), **spec)
    template["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "2"}}
    return {"name": "launcher", "replicas": 1, "template": template}


def test_a_launcher_has_to_fit_beside_the_ranks():
    stored, _ = create(volcano_job(4, more_tasks=[launcher()]), ask(), cluster(a=4), VOLCANO)
    assert stored["spec"]["networkTopology"]["highestTierAllowed"] == 1
    elsewhere = launcher(nodeSelector={"pool": "cpu"})
    stored, _ = create(volcano_job(4, more_tasks=[elsewhere]), ask(), cluster(a=4), VOLCANO)
    assert read_topology(stored["spec"]["tasks"][0])["reason"]["code"] == "TopologyCapacityUnknown"


OWN = {
    "a topology of its own": volcano_job(networkTopology={"mode": "soft"}),
    "a partition": volcano_job(),
}
OWN["a partition"]["spec"]["tasks"][0]["partitionPolicy"] = {"totalPartitions": 2, "partitionSize": 2}


@pytest.mark.parametrize("tree", OWN.values(), ids=OWN)
def test_a_constraint_of_the_author_stays(tree):
    stored, _ = create(tree, ask(), cluster(a=4), VOLCANO)
    assert stored["spec"].get("networkTopology") == tree["spec"].get("networkTopology")
    assert read_topology(stored["spec"]["tasks"][0])["reason"]["code"] == "TopologyOfAuthor"


@pytest.mark.parametrize(
    ("row", "tree"),
    [(JOB, other(JOB)), (JOB, other(JOB, "4")), (SET, other(SET, "4"))],
    ids=["Job", "Job whose pods start together", "StatefulSet whose pods start together"],
)
def test_pods_of_other_controllers_get_annotations(row, tree):
    stored, _ = create(tree, ask(), cluster(a=4), row)
    annotations = stored["spec"]["template"]["metadata"]["annotations"]
    assert {key: annotations[key] for key in (MODE, TIER)} == {MODE: "hard", TIER: "1"}
    assert json.loads(annotations[TOPOLOGY])["annotations"] == [MODE, TIER]
    assert stored["metadata"]["annotations"] == {LEAST: "4"}
    assert "scheduling" not in stored["spec"]
    assert "patch" not in review(stored, ask(), cluster(a=4), row)


FEWER = {  # workloads whose first pods Volcano may place before there are others
    "TopologySmallerGang, Job": (JOB, other(JOB, "2")),
    "TopologyCompletionsDiffer": (JOB, other(JOB, completions=8)),
    "TopologyCompletionsDiffer, four of its author": (JOB, other(JOB, "4", completions=8)),
    "TopologySmallerGang, StatefulSet": (SET, other(SET)),
    "TopologySmallerGang, Volcano Job": (VOLCANO, volcano_job(minAvailable=3)),
    "TopologySmallerGang, task": (VOLCANO, volcano_job()),
}
FEWER["TopologySmallerGang, task"][1]["spec"]["tasks"][0]["minAvailable"] = 3


@pytest.mark.parametrize("case", FEWER)
def test_a_workload_that_starts_with_fewer_pods_gets_no_hard_constraint(case):
    row, tree = FEWER[case]
    stored, _ = create(copy.deepcopy(tree), ask(), cluster(a=4), row)
    holder = stored["spec"]["tasks"][0] if row is VOLCANO else stored["spec"]
    assert read_topology(holder)["reason"]["code"] == case.partition(",")[0]
    assert stored["metadata"].get("annotations") == tree["metadata"].get("annotations")
    soft, _ = create(copy.deepcopy(tree), ask("preferred"), cluster(a=4), row)
    assert "soft" in json.dumps(soft)
    assert soft["metadata"].get("annotations") == tree["metadata"].get("annotations")


@pytest.mark.parametrize("least", [5, 0])
def test_a_volcano_job_that_starts_as_a_whole_gets_a_hard_constraint(least):
    """Volcano replaces 0 by the number of all pods (webhooks/admission/jobs/mutate, patchDefaultMinAvailable)."""
    stored, _ = create(volcano_job(4, more_tasks=[launcher()], minAvailable=least), ask(), cluster(a=4), VOLCANO)
    assert stored["spec"]["networkTopology"]["mode"] == "hard"


@pytest.mark.parametrize("key", [MODE, TIER, "scheduling.k8s.io/group-name"])
def test_annotations_of_the_author_stay(key):
    tree = other(JOB, annotations={key: "1"})
    stored, _ = create(tree, ask(), cluster(a=4), JOB)
    annotations = stored["spec"]["template"]["metadata"]["annotations"]
    assert annotations.keys() & {MODE, TIER} == {key} & {MODE, TIER}
    assert json.loads(annotations[TOPOLOGY])["reason"]["code"] == "TopologyOfAuthor"


@pytest.mark.parametrize("row", [VOLCANO, JOB, SET], ids=["Volcano Job", "Job", "StatefulSet"])
def test_an_update_without_the_topology_gets_it_back(row):
    written = volcano_job(4) if row is VOLCANO else other(row, "4")
    stored, _ = create(written, ask(), cluster(a=4), row)
    response = review(written, ask(), cluster(), row, operation="UPDATE", oldObject=stored)
    assert jsonpatch.apply_patch(copy.deepcopy(written), admitting.operations(response)) == stored


def test_an_update_of_a_template_under_another_policy_adds_nothing():
    stored, _ = create(other(SET), ask('"off"'), cluster(a=4), SET)
    changed = copy.deepcopy(stored)
    changed["spec"]["template"]["spec"]["hostNetwork"] = True
    response = review(changed, ask(), cluster(a=4), SET, operation="UPDATE", oldObject=stored)
    assert "topology" not in json.dumps(admitting.operations(response))
