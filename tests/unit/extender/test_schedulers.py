"""Both protocols on captured bodies: the answers have the form that each scheduler reads."""

import asyncio
import gc
import itertools
import json
import tracemalloc
from collections import Counter

import claimed
import devices
import extending
import msgspec
import pytest
from admitting import WIRE
from hypothesis import given as given_
from hypothesis import strategies as st
from placing import GPU, LEAF, RESOURCES, TWO_SIDED, change_fabric, change_pod, node, pod, policy

from extender import app, decoding, kube_scheduler, state
from railwright.fabric import names, views
from railwright.fabric.claims import objects
from railwright.fabric.placement import locality
from railwright.fabric.policy import model
from railwright.serving import routes, turns


class Handlers(extending.Site):
    """The cluster of the eight captured nodes."""

    def __init__(self, given=None, *, nodes=None):
        self.counted, self.rejected = [], Counter()
        super().__init__(
            nodes or [node(f"gpu-{i}", f"leaf-{i // 4}", rails_each=100) for i in range(8)],
            (),
            given,
            now=0.0,
            observe=lambda *row: self.counted.append(row),
            count_rejected=lambda code, nodes: self.rejected.update({code: nodes}),
        )


@pytest.fixture
def handlers():
    return Handlers()


def body(name: str, **changes) -> dict:
    return json.loads((WIRE / f"{name}.json").read_bytes()) | changes


def raw(tree) -> bytes:
    return json.dumps(tree).encode()


CHANGES = {
    "nothing": lambda _: None,
    "the policy": lambda site: setattr(site, "policy", msgspec.structs.replace(policy(domains=[]), digest="other")),
    "a binding": lambda site: site.pods.upsert(pod("b", on="gpu-1", group="g")),
    "the gang": lambda site: site.pods.upsert(pod("c", group="g")),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("asked", ["a", "b"])
def test_prioritize_reads_what_has_changed_since_filter(change, asked):
    """Nodes that are written as filter has answered them are not decoded again, nor is what follows from the pod."""
    answers = []
    for separators in ((",", ":"), (", ", ": ")):
        nodes = [node(f"gpu-{number}", f"leaf-{number // 4}") for number in range(8)]
        site = Handlers(policy(required=True, domains=[LEAF]), nodes=nodes)
        site.pods.upsert(pod("held", on="gpu-0"))
        site.add_gang([pod("a", group="g"), pod("b", group="g")], "g")

        def write(of, nodes, separators=separators):
            tree = json.loads(extending.build_body(pod(of, group="g"), nodes, **extending.PREFERRING))
            return json.dumps(tree, separators=separators).encode()

        left = json.loads(site.verbs.kube.filter(write("a", site.names)))["NodeNames"]
        assert left == site.names[1:]
        change(site)
        answers.append(turns.complete(site.verbs.kube.prioritize(write(asked, left))))
    assert answers[0] == answers[1]


FILTER_CHANGES = CHANGES | {
    "rails": lambda site: setattr(site, "policy", change_fabric(policy(domains=[LEAF]))),
    "the end of a pod": lambda site: site.pods.remove(pod("held", on="gpu-0")),
}


@pytest.mark.parametrize("change", FILTER_CHANGES.values(), ids=FILTER_CHANGES)
def test_filter_reads_what_has_changed_since_it_was_asked_about_the_pod(change):
    """Change the text of the second request by spaces, so that nothing is remembered for it."""
    answers = []
    for separators in ((",", ":"), (", ", ": ")):
        site = Handlers(policy(required=True, domains=[LEAF]), nodes=[node(f"gpu-{i}", f"leaf-{i}") for i in range(2)])
        site.pods.upsert(pod("held", on="gpu-0"))
        asked = extending.build_body(pod("a", rails=0), site.names)
        assert json.loads(site.verbs.kube.filter(asked))["NodeNames"] == ["gpu-1"]
        change(site)
        site.now += 10
        answers.append(site.verbs.kube.filter(json.dumps(json.loads(asked), separators=separators).encode()))
    assert answers[0] == answers[1]


def test_filter_reads_the_default_fabric_again_if_the_policy_has_changed():
    given = policy(required=True, domains=[LEAF])
    fabrics = {"roce": given.document.fabrics["roce"], "other": policy().document.fabrics["roce"]}
    first, second = (
        msgspec.structs.replace(
            given, document=msgspec.structs.replace(given.document, fabrics=fabrics, default_fabric=name), digest=name
        )
        for name in fabrics
    )
    site = Handlers(first, nodes=[node("gpu-0", rails_each=0), node("gpu-1", rails_each=1)])
    asked = extending.build_body(pod("a", rails=0, label="default"), site.names)
    assert json.loads(site.verbs.kube.filter(asked))["NodeNames"] == ["gpu-1"]
    site.policy = second
    assert json.loads(site.verbs.kube.filter(asked))["NodeNames"] == ["gpu-0", "gpu-1"]


def change_template(site, requested) -> None:
    """Change the template of the pod's claim to these rails, and other parts of its request."""
    rails, parts = requested
    tree = claimed.build_template_tree("t", rails)
    tree["metadata"]["namespace"] = "train"
    tree["spec"]["spec"]["devices"] |= parts
    changed = msgspec.convert(tree, objects.ResourceClaimTemplate)
    claimed.get_sink(site.state, "ResourceClaimTemplate").upsert(changed)


@pytest.mark.parametrize(
    ("held", "before", "after"),
    [([0], ([0], {"constraints": []}), ([2], {"constraints": []})), ([], ([0], {}), ([0], {"constraints": []}))],
    ids=["which devices", "which of them must be beside each other"],
)
def test_filter_reads_what_has_changed_of_claims_since_it_was_asked_about_the_pod(held, before, after):
    """Rail 0, or the GPUs beside it, are taken on the first node."""
    site = Handlers(claimed.policy(), nodes=[claimed.build_node(name, LEAF) for name in ("gpu-0", "gpu-1")])
    claimed.name_devices(site.state.cluster)
    claimed.add_slices(site.state.cluster, *site.names)
    change_template(site, before)
    other = claimed.build_claim("held", held, gpus=2, pod_uid="uid-held", on="gpu-0")
    claimed.get_sink(site.state, "ResourceClaim").upsert(devices.read_claim(other))
    asked = extending.build_body(claimed.build_pod("a"), site.names)
    assert json.loads(site.verbs.kube.filter(asked))["NodeNames"] == ["gpu-1"]
    change_template(site, after)
    assert json.loads(site.verbs.kube.filter(asked))["NodeNames"] == ["gpu-0", "gpu-1"]


async def test_a_decision_is_recorded_when_its_answer_was_sent_or_somebody_reads_it(handlers):
    deciding, recorded = handlers.verbs.decider, []
    deciding.explanations.record_decision = lambda _, request, __: recorded.append(request.name)
    filter_route = app.build_routes(deciding, None)[0]

    def ask(name: str) -> routes.Reply:
        asked = extending.build_body(pod(name, group="g"), handlers.names)
        return filter_route.handle(routes.Call(asked, {}, {}, {}, ""))

    handlers.add_gang([pod("a", group="g"), pod("b", group="g")], "g")
    assert ask("a").status == 200
    assert not recorded
    await asyncio.sleep(0)
    assert recorded == ["a"]
    ask("b")
    assert deciding.gangs
    assert recorded == ["a", "b"]


def test_a_pod_that_did_not_opt_in_is_neutral_in_every_verb(handlers):
    request_body = body("volcano-prioritize")
    del request_body["task"]["Pod"]["metadata"]["labels"]["railwright.io/fabric"]
    request_body["task"]["Pod"]["metadata"].get("annotations", {}).pop("railwright.io/injection", None)
    assert set(handlers.ask_volcano("prioritize", request_body)["nodeScore"].values()) == {0.0}
    request = {"Pod": request_body["task"]["Pod"], "Nodes": None, "NodeNames": ["gpu-0", "gpu-1"]}
    assert handlers.ask_kube("filter", request)["NodeNames"] == ["gpu-0", "gpu-1"]
    assert {row["Score"] for row in handlers.ask_kube("prioritize", request)} == {0}


def test_idle_amounts_of_the_session_replace_the_cached_free_amounts(handlers):
    request_body = body("volcano-prioritize")
    for offer in request_body["nodes"]:
        if offer["Name"] == "gpu-0":
            offer["Idle"]["ScalarResources"][RESOURCES[1]] = 0
    answer = predicate(handlers, request_body, "gpu-0")
    assert answer["code"] == 2
    assert answer["status"] == "railwright: rail1 is busy: 0 of 100 nvidia.com/mlx5_1 free, 1 needed"
    assert predicate(handlers, request_body, "gpu-1") == {"status": "", "code": 0}


def predicate(handlers, given, name):
    chosen = next(node for node in given["nodes"] if node["Name"] == name)
    return handlers.ask_volcano("predicate", {"task": given["task"], "node": chosen})


def test_a_node_that_can_never_give_the_rail_is_code_3():
    handlers = Handlers(nodes=[node("gpu-0", rails_each=dict.fromkeys(RESOURCES[:3], 100))])
    request_body = body("volcano-prioritize")
    request_body["nodes"][0]["Idle"]["ScalarResources"].pop(RESOURCES[3])
    assert predicate(handlers, request_body, "gpu-0")["code"] == 3


def test_devices_being_released_let_the_predicate_pass():
    handlers = Handlers(nodes=[node("gpu-0")])
    request_body = body("volcano-prioritize")
    offered = request_body["nodes"][0]
    offered["Idle"]["ScalarResources"] |= dict.fromkeys(RESOURCES, 0)
    assert predicate(handlers, request_body, "gpu-0")["code"] == 2
    offered["Releasing"]["ScalarResources"] = dict.fromkeys(RESOURCES, 1000)
    assert predicate(handlers, request_body, "gpu-0")["code"] == 0
    offered["Pipelined"]["ScalarResources"] = dict.fromkeys(RESOURCES, 1000)
    assert predicate(handlers, request_body, "gpu-0")["code"] == 2


def test_allocate_adds_a_peer_and_deallocate_removes_it(handlers):
    event, scored = body("volcano-allocate"), body("volcano-prioritize")
    assert event["task"]["NodeName"] == "gpu-5"
    scored["task"]["UID"] = scored["task"]["Pod"]["metadata"]["uid"] = "another"
    before = handlers.ask_volcano("prioritize", scored)["nodeScore"]
    assert handlers.verbs.volcano.allocate(raw(event), "") == b'{"errorMessage":""}'
    with_peer = handlers.ask_volcano("prioritize", scored)["nodeScore"]
    assert with_peer["gpu-6"] > with_peer["gpu-0"]
    handlers.verbs.volcano.deallocate(raw(event), "")
    handlers.verbs.volcano.deallocate(raw(event), "")
    assert handlers.ask_volcano("prioritize", scored)["nodeScore"] == before


def test_devices_bound_by_another_scheduler_since_the_session_began_are_not_free(handlers):
    handlers = Handlers(nodes=[node(f"gpu-{i}") for i in range(8)])
    request_body = body("volcano-prioritize")
    for offer in request_body["nodes"]:
        offer["Idle"]["ScalarResources"] |= dict.fromkeys(RESOURCES, 1000)
    assert predicate(handlers, request_body, "gpu-0")["code"] == 0
    handlers.state.cluster.upsert_pod(pod("of-kube-scheduler", on="gpu-0"))
    assert predicate(handlers, request_body, "gpu-0")["code"] == 2
    releasing = next(node for node in request_body["nodes"] if node["Name"] == "gpu-0")
    releasing["Releasing"]["ScalarResources"] = {"nvidia.com/gpu": 1000}
    assert predicate(handlers, request_body, "gpu-0")["code"] == 2
    assert predicate(handlers, request_body, "gpu-1")["code"] == 0


def test_allocate_fails_where_another_scheduler_has_bound_the_required_rail():
    handlers = Handlers(nodes=[node(f"gpu-{i}") for i in range(8)])
    event = body("volcano-allocate")
    handlers.state.cluster.upsert_pod(pod("of-kube-scheduler", on=event["task"]["NodeName"]))
    error_message = handlers.ask_volcano("allocate", event)["errorMessage"]
    assert error_message.startswith(
        "railwright: rail0 of gpu-5 was allocated by another scheduler in the meantime: 0 nvidia.com/mlx5_0"
    )
    assert len(handlers.state.assumed) == 0
    promised = event | {"task": event["task"] | {"Status": 4}}  # pipelined: it waits for the other to go
    assert handlers.verbs.volcano.allocate(raw(promised), "") == b'{"errorMessage":""}'
    handlers.policy = policy(required=False, domains=[LEAF])
    assert handlers.verbs.volcano.allocate(raw(event), "") == b'{"errorMessage":""}'


def test_allocate_fails_for_a_moment_where_kube_scheduler_is_placing_a_pod():
    handlers = Handlers(nodes=[node(f"gpu-{i}") for i in range(8)])
    event, asked = body("volcano-allocate"), body("kube-scheduler-filter")
    asked["Pod"]["metadata"] |= {"uid": "other"}

    def announce() -> str:
        return handlers.ask_volcano("allocate", event)["errorMessage"]

    handlers.verbs.kube.filter(raw(asked | {"NodeNames": ["gpu-5", "gpu-6"]}))
    assert announce() == "", "it may go elsewhere"
    handlers.verbs.volcano.deallocate(raw(event), "")
    handlers.verbs.kube.filter(raw(asked | {"NodeNames": ["gpu-5"]}))
    assert "rail0 of gpu-5 is assumed for a pod of another scheduler" in announce()
    handlers.now += 0.6
    assert announce() == ""


def test_the_watch_confirms_an_allocation(handlers):
    pods = handlers.pods
    event = body("volcano-allocate")
    handlers.verbs.volcano.allocate(raw(event), "")
    pods.upsert(change_pod(pod("rdma-test-master-0", on="gpu-5"), metadata={"uid": event["task"]["UID"]}))
    assert len(handlers.state.assumed) == 0
    handlers.verbs.volcano.allocate(raw(event), "")
    assert len(handlers.state.assumed) == 0, "a late event must not count a bound pod twice"


def test_kube_filter_sorts_busy_from_impossible():
    bare = node("gpu-2", rails_each=dict.fromkeys(RESOURCES[1:], 1))
    handlers = Handlers(nodes=[node("gpu-0"), node("gpu-1"), bare])
    handlers.state.cluster.upsert_pod(pod("holder", on="gpu-1"))
    request_body = body("kube-scheduler-filter", NodeNames=["gpu-0", "gpu-1", "gpu-2", "unknown"])
    answer = handlers.ask_kube("filter", request_body)
    assert answer["NodeNames"] == ["gpu-0", "unknown"]
    assert list(answer["FailedNodes"]) == ["gpu-1"]
    assert list(answer["FailedAndUnresolvableNodes"]) == ["gpu-2"]
    assert answer["Error"] == ""
    assert ("filter", 4, 1) in handlers.counted
    assert handlers.rejected == {"RailBusy": 1, "RailUnavailable": 1}


def integers(**scores: float) -> dict[str, int]:
    return {row["Host"]: row["Score"] for row in json.loads(kube_scheduler.encode_priorities(scores))}


def test_small_score_differences_round_away_and_another_leaf_is_several_steps():
    assert integers(a=96.1, b=96.0, c=95.9) == {"a": 10, "b": 10, "c": 10}
    weights = model.Weights()
    another_leaf = weights.locality * (locality.TARGET - locality.PLANNED)
    numa_split, one_rail_of_eight = weights.numa / 2, weights.rails / 8
    priorities = integers(best=96, rail=96 - one_rail_of_eight, numa=96 - numa_split, leaf=96 - another_leaf, unknown=0)
    assert priorities == {"best": 10, "rail": 8, "numa": 7, "leaf": 5, "unknown": 0}
    assert integers(a=40.0, b=40.0) == {"a": 10, "b": 10}
    assert integers(a=0.0, b=0.0) == {"a": 0, "b": 0}, "a pod that did not opt in has no opinion"
    assert integers() == {}


@given_(st.lists(st.floats(0, 100), min_size=1, max_size=8))
def test_integers_keep_the_order_of_scores_and_their_proportion(scores):
    priorities = integers(**{f"n{i}": score for i, score in enumerate(scores)})
    best = max(scores)
    for index, score in enumerate(scores):
        lost = priorities[f"n{scores.index(best)}"] - priorities[f"n{index}"]
        assert 0 <= priorities[f"n{index}"] <= 10
        assert abs(lost - (best - score) ** 0.5) <= 0.5 + 1e-9
    ranked = sorted(range(len(scores)), key=scores.__getitem__)
    assert all(priorities[f"n{low}"] <= priorities[f"n{high}"] for low, high in itertools.pairwise(ranked))


def test_one_more_gpu_in_use_is_a_small_step_on_kube_schedulers_scale():
    """Of two nodes in use one has one more GPU in use. The difference is one step, less than any preferred affinity."""
    handlers = Handlers(nodes=[node(f"gpu-{i}", "leaf-0", rails_each=100) for i in range(2)])
    for name, gpus in (("gpu-0", 1), ("gpu-1", 2)):
        handlers.state.cluster.upsert_pod(pod(f"on-{name}", on=name, gpus=gpus))
    priorities = handlers.score(pod("p", gpus=1))
    assert priorities["gpu-1"] == 10
    assert 9 <= priorities["gpu-0"] <= 10
    request = {"task": extending.build_task(pod("p", gpus=1)), "nodes": [{"Name": "gpu-0"}, {"Name": "gpu-1"}]}
    scores = handlers.ask_volcano("prioritize", request)["nodeScore"]
    assert 0 < scores["gpu-1"] - scores["gpu-0"] < 25, "of 1,000; a preferred affinity is worth up to 200"


@pytest.mark.parametrize(
    ("verb", "given", "reason"),
    [
        ("filter", b"", "not the expected JSON"),
        ("filter", b"{}", "Pod is missing"),
        ("filter", b'{"Pod":{}}', "NodeNames is missing"),
        ("filter", b'{"Pod":{},"Nodes":{"items":[]}}', "nodeCacheCapable: true"),
        ("prioritize", b'{"Pod":1}', "not the expected JSON"),
        ("volcano_prioritize", b'{"nodes":[]}', "task is missing"),
        ("volcano_prioritize", b'{"task":{}}', "nodes is missing"),
        ("volcano_predicate", b'{"task":{}}', "node is missing"),
        ("volcano_allocate", b"{}", "task is missing"),
        ("volcano_allocate", b'{"task":{}}', "task.UID is missing"),
        ("volcano_deallocate", b"[]", "not the expected JSON"),
        ("volcano_close_session", b"x", "not the expected JSON"),
        ("volcano_close_session", b'{"a":' * 2000, "not the expected JSON"),
        ("filter", b"\xff\xfe", "not the expected JSON"),
    ],
)
def test_a_malformed_body_is_refused_with_its_reason(handlers, verb, given, reason):
    def answer(*arguments):
        reply = handlers.verbs.find(verb)(*arguments)
        return reply if isinstance(reply, bytes) else turns.complete(reply)

    with pytest.raises(decoding.MalformedError, match=reason):
        answer(given, *([""] if verb.startswith("volcano") else []))


def test_a_decision_is_explained_with_its_numbers():
    handlers = Handlers(nodes=[node("gpu-0"), node("gpu-1")])
    handlers.state.cluster.upsert_pod(pod("holder", on="gpu-1"))
    request_body = body("kube-scheduler-filter", NodeNames=["gpu-0", "gpu-1"])
    name = request_body["Pod"]["metadata"]["name"]
    handlers.verbs.kube.filter(raw(request_body))
    explanation = handlers.verbs.decider.explanations.explain("prod", name)
    refused = next(row for row in explanation.nodes if row["node"] == "gpu-1")
    assert refused["rejection"].code == "RailBusy"
    assert refused["rejection"].parameters["rail"] == "rail0"
    assert refused["rails"][0].message == "rail0 has 0 of 1 free, held by train/holder"
    assert handlers.verbs.decider.explanations.explain("prod", "other") is None


def test_a_pod_that_is_created_again_is_not_explained_by_the_decision_on_the_earlier_one():
    handlers = Handlers(nodes=[node("gpu-0"), node("gpu-1", rails_each=0)])
    metadata = {
        "namespace": "prod",
        "name": "again",
        "labels": body("kube-scheduler-filter")["Pod"]["metadata"]["labels"],
    }
    spec = body("kube-scheduler-filter")["Pod"]["spec"]

    def create(uid: str) -> dict:
        manifest = {"metadata": {**metadata, "uid": uid}, "spec": spec}
        handlers.pods.upsert(msgspec.convert(manifest, views.Pod))
        return manifest

    def ask(manifest: dict, *names: str) -> None:
        handlers.verbs.kube.filter(raw(body("kube-scheduler-filter", Pod=manifest, NodeNames=list(names))))

    ask(create("first"), "gpu-0", "gpu-1")
    handlers.pods.remove(msgspec.convert({"metadata": {**metadata, "uid": "first"}}, views.Pod))
    assert handlers.verbs.decider.explain("prod", "again") is not None, "a pod that is gone is still explained"
    second = create("second")
    assert handlers.verbs.decider.explain("prod", "again") is None
    ask(second, "gpu-1")
    assert {row["node"] for row in handlers.verbs.decider.explain("prod", "again").nodes} == {"gpu-1"}


def test_only_the_last_thousand_decisions_are_stored(handlers):
    request_body = body("kube-scheduler-filter")
    for i in range(1001):
        request_body["Pod"]["metadata"]["name"] = f"p-{i}"
        handlers.verbs.kube.filter(raw(request_body))
    assert handlers.verbs.decider.explanations.explain("prod", "p-0") is None
    assert handlers.verbs.decider.explanations.explain("prod", "p-1000") is not None


def test_stored_decisions_on_thousands_of_nodes_are_small():
    offered = [f"gpu-{i}" for i in range(1000)]
    handlers = Handlers(nodes=[node(name, f"leaf-{i // 10}", rails_each=1) for i, name in enumerate(offered)])

    def build_body(name: str) -> bytes:
        request_body = body("kube-scheduler-prioritize", NodeNames=offered)
        request_body["Pod"]["metadata"] |= {"name": name, "uid": name}
        return raw(request_body)

    wires = [build_body(f"job-{i}") for i in range(10)]
    turns.complete(handlers.verbs.kube.prioritize(build_body("first")))  # what is made once
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for wire in wires:
        turns.complete(handlers.verbs.kube.prioritize(wire))
    handlers.verbs.decider.record_decisions()  # a server does so after each answer
    gc.collect()  # stored objects count, not those that wait for the collector
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert all(handlers.verbs.decider.explanations.explain("prod", f"job-{i}") for i in range(10))
    assert (after - before) / len(wires) < 30_000  # 1,000 of them in 30 MB


def test_pods_of_a_snapshot_without_uids_are_distinct():
    handlers = Handlers(nodes=[node(f"gpu-{i}") for i in range(3)])
    handlers.pods.replace([change_pod(pod(f"p-{i}", on=f"gpu-{i}"), metadata={"uid": ""}) for i in range(2)])
    request_body = body("kube-scheduler-filter", NodeNames=["gpu-0", "gpu-1", "gpu-2"])
    del request_body["Pod"]["metadata"]["uid"]
    assert handlers.ask_kube("filter", request_body)["NodeNames"] == ["gpu-2"]


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_ends_unbound_is_no_longer_assumed(handlers, phase):
    handlers.verbs.volcano.allocate(raw(body("volcano-allocate")), "")
    (entry,) = handlers.state.assumed
    ended = msgspec.convert({"metadata": {"name": "x", "uid": entry.uid}, "status": {"phase": phase}}, views.Pod)
    handlers.pods.upsert(ended)
    assert len(handlers.state.assumed) == 0


def test_a_pod_missing_from_a_new_list_is_no_longer_assumed(handlers):
    feed, event = handlers.pods, body("volcano-allocate")
    waiting = change_pod(msgspec.convert(event["task"]["Pod"], views.Pod), spec={"node_name": ""})
    feed.replace([waiting])
    handlers.verbs.volcano.allocate(raw(event), "")
    feed.replace([waiting])
    assert len(handlers.state.assumed) == 1
    feed.replace([])
    assert len(handlers.state.assumed) == 0


def test_a_trial_eviction_keeps_a_running_pod_where_it_is(handlers):
    event = body("volcano-allocate")
    running = change_pod(pod("rdma-test-master-0", on="gpu-5"), metadata={"uid": event["task"]["UID"]})
    handlers.pods.upsert(running)
    used = dict(handlers.state.cluster.get_used("gpu-5"))
    for verb, status in (("deallocate", 64), ("allocate", 32), ("deallocate", 64)):
        event["task"]["Status"] = status
        getattr(handlers.verbs.volcano, verb)(raw(event), "")
        assert dict(handlers.state.cluster.get_used("gpu-5")) == used
        assert len(handlers.state.assumed) == 0


def test_many_dry_runs_leave_no_assumed_pods(handlers):
    event, scored = body("volcano-allocate"), body("volcano-prioritize")
    before = turns.complete(handlers.verbs.volcano.prioritize(raw(scored), ""))
    for i in range(300):
        event["task"] |= {"UID": f"uid-{i % 7}", "NodeName": f"gpu-{i % 5}", "Status": 2 if i % 3 else 4}
        handlers.verbs.volcano.allocate(raw(event), ("", "east")[i % 2])
    for i in range(7):
        event["task"] |= {"UID": f"uid-{i}", "Status": 1}
        handlers.verbs.volcano.deallocate(raw(event), "")
        handlers.verbs.volcano.deallocate(raw(event), "")
    assert len(handlers.state.assumed) == 0
    assert turns.complete(handlers.verbs.volcano.prioritize(raw(scored), "")) == before


def test_only_a_few_of_many_holders_of_a_pool_are_named():
    handlers = Handlers(nodes=[node("gpu-0", rails_each=20)])
    for i in range(20):
        handlers.state.cluster.upsert_pod(pod(f"h-{i:02}", on="gpu-0", gpus=0))
    request_body = body("kube-scheduler-filter", NodeNames=["gpu-0"])
    handlers.verbs.kube.filter(raw(request_body))
    (row,) = handlers.verbs.decider.explanations.explain("prod", request_body["Pod"]["metadata"]["name"]).nodes
    held = ", ".join(f"train/h-0{i}" for i in range(5))
    assert row["rails"][0].message == f"rail0 has 0 of 20 free, held by {held} and others"


def test_a_rail_without_a_resource_is_counted_by_that_of_its_network():
    handlers = Handlers(policy(required=True, domains=[LEAF]), nodes=[node("gpu-0"), node("gpu-1")])
    rails = handlers.policy.document.fabrics["roce"].rails
    bare = [msgspec.structs.replace(rail, resource=None, network=f"net/{rail.name}") for rail in rails]
    handlers.policy = change_fabric(handlers.policy, rails=tuple(bare))
    handlers.state.cluster.upsert_pod(pod("holder", on="gpu-1"))
    given = raw(body("kube-scheduler-filter", NodeNames=["gpu-0", "gpu-1"]))
    assert json.loads(handlers.verbs.kube.filter(given))["NodeNames"] == ["gpu-0", "gpu-1"], (
        "nothing says what to count"
    )
    feed = state.Networks(handlers.state)
    feed.replace([network(rail.name, resource) for rail, resource in zip(bare, RESOURCES, strict=True)])
    assert list(json.loads(handlers.verbs.kube.filter(given))["FailedNodes"]) == ["gpu-1"]
    feed.upsert(network("rail0", None))
    assert "rail1 is busy" in json.loads(handlers.verbs.kube.filter(given))["FailedNodes"]["gpu-1"]
    for rail in bare:
        feed.remove(network(rail.name, None))
    assert not handlers.state.pools


def network(name, resource):
    annotations = {names.NAD_RESOURCE_NAME: resource} if resource else {}
    tree = {"metadata": {"namespace": "net", "name": name, "annotations": annotations}}
    return msgspec.convert(tree, views.NetworkAttachmentDefinition)


def test_an_unrepresentable_number_counts_as_the_largest_amount(handlers):
    given, event = body("volcano-prioritize"), body("volcano-allocate")
    given["nodes"][0]["Idle"]["Memory"] = event["task"]["InitResreq"]["Memory"] = 1e308
    assert handlers.ask_volcano("prioritize", given)["nodeScore"]["gpu-0"] > 0
    assert handlers.verbs.volcano.allocate(raw(event), "") == b'{"errorMessage":""}'


def test_a_node_named_twice_counts_once(handlers):
    request_body = body("volcano-prioritize")
    request_body["nodes"] = [request_body["nodes"][0]] * 8
    assert list(handlers.ask_volcano("prioritize", request_body)["nodeScore"]) == ["gpu-0"]
    task = request_body["task"]["Pod"]["metadata"]
    explanation = handlers.verbs.decider.explanations.explain(task["namespace"], task["name"])
    assert explanation.candidate_nodes == 1
    request = {"Pod": request_body["task"]["Pod"], "Nodes": None, "NodeNames": ["gpu-0", "gpu-0"]}
    assert handlers.ask_kube("filter", request)["NodeNames"] == ["gpu-0"]


def whole_node(given, **amounts):
    """Return the first node of the request, and its task with a request for the whole node."""
    requested = {GPU: 8000, **dict.fromkeys(RESOURCES, 1000)}
    given["task"]["InitResreq"]["ScalarResources"] = requested
    given["nodes"] = given["nodes"][:1]
    for name, share in amounts.items():
        given["nodes"][0][name]["ScalarResources"] = {
            resource: amount * share for resource, amount in requested.items()
        }
    return given


def test_a_pods_earlier_announcement_does_not_occupy_its_numa_node():
    handlers = Handlers(policy(domains=[LEAF], numa="required", shapes=[TWO_SIDED]), nodes=[node("gpu-0", "leaf-0")])
    given = whole_node(body("volcano-prioritize"), Idle=1)
    handlers.verbs.volcano.allocate(raw({"task": given["task"] | {"NodeName": "gpu-0"}}), "")
    handlers.verbs.volcano.close_session(b"{}", "")
    assert len(handlers.state.assumed) == 1, "its binding failed, and the next session asks again"
    assert predicate(handlers, given, "gpu-0")["code"] == 0
    assert handlers.ask_volcano("prioritize", given)["nodeScore"]["gpu-0"] > 0


def test_a_node_that_preemption_will_empty_has_empty_numa_nodes():
    handlers = Handlers(policy(domains=[LEAF], numa="required", shapes=[TWO_SIDED]), nodes=[node("gpu-0", "leaf-0")])
    handlers.state.cluster.upsert_pod(pod("victim", on="gpu-0"))
    given = whole_node(body("volcano-prioritize"), Idle=0, Allocatable=1)
    assert handlers.ask_volcano("prioritize", given)["nodeScore"]["gpu-0"] > 0


def test_an_announcement_of_volcano_survives_the_next_request_of_kube_scheduler(handlers):
    """A pod that moved from one scheduler to the other is announced by Volcano and a guess of kube-scheduler's."""
    first, second = (pod(f"p-{i}", group="g") for i in range(2))
    for peer in (first, second):
        handlers.state.cluster.upsert_pod(peer)
    handlers.filter(first)
    handlers.filter(second, handlers.names[1:])
    handlers.close()
    assert handlers.allocate(first, "gpu-3") == ""
    handlers.score(second, handlers.names[1:])
    assert handlers.state.assumed.get("uid-p-0").node == "gpu-3"


def test_an_explanation_shows_no_score_of_a_node_that_is_refused_by_now():
    handlers = Handlers(nodes=[node("gpu-0", "leaf-0"), node("gpu-1", "leaf-0")])
    handlers.score(pod("p-0"))
    for name in ("gpu-0", "gpu-1"):
        handlers.state.cluster.upsert_pod(pod(f"on-{name}", on=name))
    handlers.filter(pod("p-0"))
    explanation = handlers.explain("p-0")
    assert explanation.outcome == "unplaceable"
    assert all("rejection" in node for node in explanation.nodes)


def test_a_pod_is_not_listed_among_the_holders_that_block_it():
    handlers = Handlers(nodes=[node("gpu-0", "leaf-0")])
    given = whole_node(body("volcano-prioritize"), Idle=0)
    handlers.verbs.volcano.allocate(raw({"task": given["task"] | {"NodeName": "gpu-0"}}), "")
    predicate(handlers, given, "gpu-0")
    task = given["task"]["Pod"]["metadata"]
    explanation = handlers.verbs.decider.explanations.explain(task["namespace"], task["name"])
    assert explanation.nodes[0]["rails"]
    assert "held by" not in str(explanation.nodes)


def test_a_leaf_on_which_a_gang_failed_is_no_longer_reserved_for_it():
    site = Handlers(nodes=[node(f"{leaf}-{number}", leaf) for leaf in "ab" for number in range(2)])
    gangs = {name: [pod(f"{name}-{rank}", group=name) for rank in range(2)] for name in "xy"}
    for name, peers in gangs.items():
        site.add_gang(peers, name)

    def find_best(name: str) -> str:
        scores = site.score(gangs[name][0])
        return max(scores, key=scores.__getitem__)

    site.close()
    tried = find_best("x")
    assert find_best("y")[0] != tried[0]
    assert site.allocate(gangs["x"][0], tried) == ""
    assert find_best("y")[0] != tried[0]
    site.ask_volcano("deallocate", {"task": extending.build_task(gangs["x"][0])})
    assert find_best("y")[0] == tried[0], "as if nobody had been there"
