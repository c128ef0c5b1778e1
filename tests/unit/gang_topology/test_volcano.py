"""The topology of gangs that Volcano places: its Job's field, and the annotations of other controllers' pods."""

import copy
import json

import admitting
import jsonpatch
import pytest
import working
from topology_reviews import LEAF, SPINE, create, read_topology, review
from topology_reviews import ask as ask_for

VOLCANO, JOB, SET = map(working.get_kind, ("Job.batch.volcano.sh", "Job.batch", "StatefulSet.apps"))
MODE, TIER = "volcano.sh/network-topology-mode", "volcano.sh/network-topology-highest-tier"
LEAST = "scheduling.volcano.sh/group-min-member"
TOPOLOGY = "railwright.io/topology"
PRESET = "    placement: {preset: volcano, gangTopology: preferred}\n"


def ask(mode="required", *levels):
    """Return a policy with these levels of HyperNodes as domains."""
    return ask_for(mode, domains=levels or ("hypernode/level-1", "hypernode/level-2"))


def volcano_job(pods=4, *, more_tasks=(), **spec):
    tree = working.build_workload(VOLCANO, working.build_template(label="f"), **spec)
    tree["spec"]["tasks"][0]["replicas"] = pods
    tree["spec"]["tasks"] += more_tasks
    return tree


def other(row, least=None, /, completions=None, **template):
    """Return a workload of 4 pods. `least` is the author's number of pods that start together."""
    spec = {"parallelism": 4, "completions": completions} if row is JOB else {"replicas": 4}
    tree = working.build_workload(row, working.build_template(label="f", schedulerName="volcano", **template), **spec)
    if least is not None:
        tree["metadata"]["annotations"] = {LEAST: least}
    return tree


def test_a_hard_constraint_names_the_widest_level_of_the_policy():
    stored, _ = create(volcano_job(4), ask(), VOLCANO)
    assert stored["spec"]["networkTopology"] == {"mode": "hard", "highestTierAllowed": 2}
    assert read_topology(stored["spec"]["tasks"][0])["level"] == "hypernode/level-2"
    third, _ = create(volcano_job(4), ask("required", "hypernode/level-3"), VOLCANO)
    assert third["spec"]["networkTopology"] == {"mode": "hard", "highestTierAllowed": 3}


@pytest.mark.parametrize("by", [ask("preferred"), admitting.fabric(PRESET)], ids=["levels", "preset"])
def test_a_soft_volcano_constraint_names_no_highest_tier(by):
    stored, _ = create(volcano_job(40), by, VOLCANO)
    assert stored["spec"]["networkTopology"] == {"mode": "soft"}


@pytest.mark.parametrize("mode", ["required", "preferred"])
def test_volcano_gets_no_topology_if_the_domains_of_the_policy_are_node_labels(mode):
    """Volcano schedules no job with a topology while there are no HyperNodes."""
    stored, warnings = create(volcano_job(4), ask(mode, LEAF, SPINE), VOLCANO)
    assert "networkTopology" not in stored["spec"]
    assert read_topology(stored["spec"]["tasks"][0])["reason"]["code"] == "TopologyNoKey"
    (warning,) = [line for line in warnings if "Topology" in line]
    assert "levels of HyperNodes such as hypernode/level-1 for Volcano" in warning


OWN = {
    "a topology of its own": volcano_job(networkTopology={"mode": "soft"}),
    "a partition": volcano_job(),
}
OWN["a partition"]["spec"]["tasks"][0]["partitionPolicy"] = {"totalPartitions": 2, "partitionSize": 2}


@pytest.mark.parametrize("tree", OWN.values(), ids=OWN)
def test_a_topology_constraint_of_the_author_is_kept(tree):
    stored, _ = create(tree, ask(), VOLCANO)
    assert stored["spec"].get("networkTopology") == tree["spec"].get("networkTopology")
    assert read_topology(stored["spec"]["tasks"][0])["reason"]["code"] == "TopologyNotWritten"


@pytest.mark.parametrize(
    ("row", "tree"),
    [(JOB, other(JOB)), (JOB, other(JOB, "4")), (SET, other(SET, "4"))],
    ids=["Job", "Job whose pods start together", "StatefulSet whose pods start together"],
)
def test_a_job_that_volcano_schedules_gets_its_topology_as_annotations(row, tree):
    stored, _ = create(tree, ask(), row)
    annotations = stored["spec"]["template"]["metadata"]["annotations"]
    assert {key: annotations[key] for key in (MODE, TIER)} == {MODE: "hard", TIER: "2"}
    assert json.loads(annotations[TOPOLOGY])["annotations"] == [MODE, TIER]
    assert stored["metadata"]["annotations"] == {LEAST: "4"}
    assert "scheduling" not in stored["spec"]
    assert "patch" not in review(stored, ask(), row)


FEWER = {  # workloads whose first pods Volcano may place before there are others
    "the scheduler starts fewer pods, Job": (JOB, other(JOB, "2")),
    "completions": (JOB, other(JOB, completions=8)),
    "completions, four of its author": (JOB, other(JOB, "4", completions=8)),
    "the scheduler starts fewer pods, StatefulSet": (SET, other(SET)),
    "with spec.minAvailable, Volcano Job": (VOLCANO, volcano_job(minAvailable=3)),
    "with minAvailable of a task": (VOLCANO, volcano_job()),
}
FEWER["with minAvailable of a task"][1]["spec"]["tasks"][0]["minAvailable"] = 3


@pytest.mark.parametrize("case", FEWER)
def test_a_workload_that_starts_with_fewer_pods_gets_no_hard_constraint(case):
    row, tree = FEWER[case]
    stored, _ = create(copy.deepcopy(tree), ask(), row)
    holder = stored["spec"]["tasks"][0] if row is VOLCANO else stored["spec"]
    reason = read_topology(holder)["reason"]
    assert (reason["code"], case.partition(",")[0] in reason["message"]) == ("TopologyNotWritten", True)
    assert stored["metadata"].get("annotations") == tree["metadata"].get("annotations")
    soft, _ = create(copy.deepcopy(tree), ask("preferred"), row)
    assert "soft" in json.dumps(soft)
    assert soft["metadata"].get("annotations") == tree["metadata"].get("annotations")


@pytest.mark.parametrize("key", [MODE, TIER, "scheduling.k8s.io/group-name"])
def test_topology_annotations_of_the_author_are_kept(key):
    tree = other(JOB, annotations={key: "1"})
    stored, _ = create(tree, ask(), JOB)
    annotations = stored["spec"]["template"]["metadata"]["annotations"]
    assert annotations.keys() & {MODE, TIER} == {key} & {MODE, TIER}
    assert json.loads(annotations[TOPOLOGY])["reason"]["code"] == "TopologyNotWritten"


@pytest.mark.parametrize("row", [VOLCANO, JOB, SET], ids=["Volcano Job", "Job", "StatefulSet"])
def test_an_update_that_lacks_the_written_topology_gets_it_back(row):
    written = volcano_job(4) if row is VOLCANO else other(row, "4")
    stored, _ = create(written, ask(), row)
    response = review(written, ask(), row, operation="UPDATE", oldObject=stored)
    assert jsonpatch.apply_patch(copy.deepcopy(written), admitting.decode_operations(response)) == stored


def test_a_forged_record_restores_only_topology_fields():
    old = volcano_job(4)
    old["spec"]["tasks"][0]["template"]["metadata"]["annotations"] = {TOPOLOGY: json.dumps({"fields": ["/spec/queue"]})}
    old["spec"]["queue"] = "q"
    new = copy.deepcopy(old)
    del new["spec"]["queue"]
    assert "patch" not in review(new, ask(), VOLCANO, operation="UPDATE", oldObject=old)
