"""The constraints of Grove's PodCliqueSets: what the review of one writes, what an update keeps, and why nothing is.

Grove is not run. The constraint and the topology are compared with cuts of its definitions.
"""

import copy
import pathlib

import jsonpatch
import jsonschema
import msgspec
import pytest
import working
import yaml
from admitting import fabric, operations
from topology_reviews import HOST, LEAF, SPINE, TOPOLOGY, ask, build_state, create, review

from railwright.cluster import resources
from railwright.fabric.gang_topology import writings
from railwright.fabric.workloads import frameworks, grove

DATA = pathlib.Path(__file__).parents[2] / "data" / "grove" / "definitions.yaml"
SET = working.kind("PodCliqueSet.grove.io")
LEVELS = {SPINE: "block", LEAF: "rack", HOST: "host"}
OFF = fabric()


def build_binding(levels=LEVELS, *, scheduler="kai-scheduler", in_sync=True):
    status = {"schedulerName": scheduler, "topologyReference": "fabric", "inSync": in_sync}
    return {
        "metadata": {"name": "fabric"},
        "spec": {"levels": [{"domain": domain, "key": key} for key, domain in levels.items()]},
        "status": {"schedulerTopologyStatuses": [status]},
    }


def cluster(*bindings):
    """Return a spine with leaves of 4 and 3 nodes, and Grove's topologies."""
    known = build_state(a=4, b=3)
    known.grove_topologies.replace([msgspec.convert(tree, grove.ClusterTopologyBinding) for tree in bindings])
    return known.build_topology_facts()


AT = cluster(build_binding())


def clique(name, replicas, *containers, scheduler="kai-scheduler", **spec):
    pod = working.template(*containers, schedulerName=scheduler)["spec"]
    return {"name": name, "spec": {"roleName": name, "replicas": replicas, **spec, "podSpec": pod}}


def service(prefill=4, *, scheduler="kai-scheduler", metadata=None, **spec):
    """Return a set: a router without devices, prefill, and a group of a decode leader and its three workers."""
    router = clique("router", 2, {"name": "c", "image": "i"}, scheduler=scheduler)
    prefill_clique = clique("prefill", prefill, scheduler=scheduler, **spec)
    decode = [clique(name, pods, scheduler=scheduler) for name, pods in (("leader", 1), ("worker", 3))]
    group = {"name": "decode", "cliqueNames": ["leader", "worker"], "replicas": 2}
    template = {"cliques": [router, prefill_clique, *decode], "podCliqueScalingGroups": [group]}
    labels = {"railwright.io/fabric": "f"}
    return {
        "metadata": {"name": "w", "namespace": "prod", "labels": labels, **(metadata or {})},
        "spec": {"replicas": 2, "template": template},
    }


def read_constraints(tree):
    """Return what the set has, by the name of the clique or scaling group."""
    template = tree["spec"]["template"]
    parts = [*template["cliques"], *template["podCliqueScalingGroups"], {"name": "", **template}]
    return {part["name"]: part["topologyConstraint"] for part in parts if "topologyConstraint" in part}


def read_record(tree, name):
    annotations = next(part for part in tree["spec"]["template"]["cliques"] if part["name"] == name)["annotations"]
    return msgspec.json.decode(annotations[TOPOLOGY])


def constrain(**pack):
    return {"topologyName": "fabric", "pack": pack}


WRITTEN = {  # pods of prefill, the mode, and the constraint of prefill and of the decode group
    "in a leaf": (4, "required", constrain(required="rack"), constrain(required="rack")),
    "larger than a leaf": (6, "required", constrain(required="block", preferred="rack"), constrain(required="rack")),
    "soft": (40, "preferred", constrain(preferred="rack"), constrain(preferred="rack")),
}


@pytest.mark.parametrize("case", WRITTEN)
def test_each_gang_of_a_set_gets_its_constraint(case):
    pods, mode, prefill, decode = WRITTEN[case]
    stored, warnings = create(service(pods), ask(mode), AT, SET)
    assert read_constraints(stored) == {"prefill": prefill, "decode": decode}
    assert not warnings
    assert "patch" not in review(stored, ask(mode), AT, SET), "the API server may ask twice"
    record = read_record(stored, "worker")
    assert (record["scheduler"], record["level"]) == ("KAI", LEAF)
    assert record["fields"] == ["/spec/template/podCliqueScalingGroups/[decode]/topologyConstraint"]
    assert record["reason"]["parameters"]["pods"] == 4


OWNER = {"apiVersion": "v1", "kind": "DynamoGraphDeployment", "name": "d", "uid": "u", "controller": True}
OF_SET, OF_GROUP = service(), service()
OF_SET["spec"]["template"]["topologyConstraint"] = constrain(required="block")
OF_GROUP["spec"]["template"]["podCliqueScalingGroups"][0]["topologyConstraint"] = constrain(required="block")
NOT_WRITTEN = {
    "TopologyOfAuthor, set": (OF_SET, AT),
    "TopologyOfAuthor, group": (OF_GROUP, AT),
    "TopologyOfOwner": (service(metadata={"ownerReferences": [OWNER]}), AT),
    "TopologyNoKey, no topology": (service(), cluster()),
    "TopologyNoKey, not in sync": (service(), cluster(build_binding(in_sync=False))),
    "TopologyNoKey, of another scheduler": (service(), cluster(build_binding(scheduler="volcano"))),
    "TopologyNoKey, other levels": (service(), cluster(build_binding({HOST: "host"}))),
    "TopologyGangTooLarge": (service(8), AT),
    "TopologySmallerGang, minimum": (service(minAvailable=2), AT),
    "TopologySmallerGang, scaled": (service(autoScalingConfig={"maxReplicas": 8}), AT),
    "TopologyNoField, Volcano": (service(scheduler="volcano"), AT),
    "TopologyNoField, default": (service(scheduler=""), AT),
}


@pytest.mark.parametrize("case", NOT_WRITTEN)
def test_the_record_says_why_nothing_is_written(case):
    tree, at = NOT_WRITTEN[case]
    stored, _ = create(copy.deepcopy(tree), ask(), at, SET)
    assert read_constraints(stored).get("prefill") is None
    assert read_record(stored, "prefill")["reason"]["code"] == case.partition(",")[0]


@pytest.mark.parametrize("later", [ask(), OFF], ids=["asked", "off"])
def test_an_update_without_the_constraints_keeps_them(later):
    """`kubectl apply` replaces lists. The policy may have changed since."""
    tree = service()
    stored, _ = create(tree, ask(), AT, SET)
    for _ in range(2):
        update = copy.deepcopy(tree)
        update["spec"]["template"]["cliques"].reverse()
        response = review(update, later, AT, SET, operation="UPDATE", oldObject=stored)
        updated = jsonpatch.apply_patch(update, operations(response))
        assert read_constraints(updated) == read_constraints(stored)
        reversed_cliques = [*reversed(updated["spec"]["template"]["cliques"])]
        assert reversed_cliques == stored["spec"]["template"]["cliques"]
        stored = {**updated, "spec": copy.deepcopy(updated["spec"])}
        stored["spec"]["template"]["cliques"] = reversed_cliques


def test_an_update_keeps_only_what_railwright_wrote():
    tree = service()
    stored, _ = create(tree, OFF, AT, SET)
    template = stored["spec"]["template"]
    cliques = ("/spec/template/cliques/[removed]/topologyConstraint", "/spec/template/topologyConstraint")
    forged = {"fields": [*cliques, "/spec/replicas"]}
    template["cliques"][1]["annotations"] = {TOPOLOGY: msgspec.json.encode(forged).decode()}
    template["topologyConstraint"] = constrain(required="block")
    update = copy.deepcopy(tree)
    del update["spec"]["replicas"]
    response = review(update, OFF, AT, SET, operation="UPDATE", oldObject=stored)
    updated = jsonpatch.apply_patch(update, operations(response))
    assert read_constraints(updated) == {}
    assert "replicas" not in updated["spec"]


@pytest.mark.parametrize(
    "broken",
    [
        None,
        3,
        "x",
        [None, 3, {"name": 4}, {"name": "b", "cliqueNames": 5}, {"name": "a/b~[c]", "cliqueNames": [{}, "x"]}],
    ],
)
def test_groups_of_any_form_do_not_stop_a_review(broken):
    tree = service()
    tree["spec"]["template"]["podCliqueScalingGroups"] = broken
    stored, _ = create(tree, ask(), AT, SET)
    (prefill,) = [part for part in stored["spec"]["template"]["cliques"] if part["name"] == "prefill"]
    assert prefill["topologyConstraint"] == constrain(required="rack")


def test_few_of_the_fields_of_forged_records_are_looked_for(monkeypatch):
    """Each is looked for in all cliques, and 128 cliques have room for thousands."""
    looked_for = []
    monkeypatch.setattr(writings, "find", lambda _, path: looked_for.append(path) or ("", None))
    tree = service()
    cliques = [clique(f"c{i}", 1) for i in range(9)]
    for i, forged in enumerate(cliques):
        fields = [f"/spec/template/cliques/[{i}.{j}]/topologyConstraint" for j in range(36)]
        forged["annotations"] = {TOPOLOGY: msgspec.json.encode({"fields": fields}).decode()}
    tree["spec"]["template"] = {"cliques": cliques}
    review(tree, ask(), AT, SET)
    assert 0 < len(looked_for) <= frameworks.MAX_TEMPLATES


def test_many_gangs_are_not_measured():
    """Each takes time while other reviews wait."""
    tree = service()
    template = tree["spec"]["template"]
    template["podCliqueScalingGroups"] = []
    template["cliques"] = [clique(f"c{i}", 2) for i in range(9)]
    stored, _ = create(tree, ask(), AT, SET)
    assert read_record(stored, "c0")["reason"]["code"] == "TopologyCapacityUnknown"
    stored, _ = create(tree, ask("preferred"), AT, SET)
    assert len(read_constraints(stored)) == 9


# --- form -----------------------------------------------------------------------------------------------------


def is_valid(schema, tree):
    """True if the tree has the form of a schema, and no other fields."""
    fields = schema.get("properties", {})
    if not jsonschema.Draft202012Validator(schema).is_valid(tree):
        return False
    return not isinstance(tree, dict) or all(key in fields and is_valid(fields[key], tree[key]) for key in tree)


def test_constraints_and_topologies_have_the_form_of_groves_definitions():
    constraint, definition = yaml.safe_load_all(DATA.read_text())
    stored, _ = create(service(6), ask(), AT, SET)
    assert all(is_valid(constraint, value) for value in read_constraints(stored).values())
    assert not is_valid(constraint, {"topology": "fabric"})
    (version,) = definition["versions"]
    path = f"/apis/{definition['group']}/{version['name']}/{definition['names']['plural']}"
    assert path == resources.GROVE_TOPOLOGIES.path
    binding = build_binding()
    del binding["metadata"]
    assert is_valid(version["schema"]["openAPIV3Schema"], binding)
