"""Requests that take time: the first about a new kind of pods, in turns, and one that waits for an event."""

import asyncio
import json

import extending
import msgspec
import pytest
from placing import GPU, LEAF, leaves, node, pod, policy

from extender import __main__ as extender_main
from extender import app, scheduling_requests, state, volcano_wire
from railwright.fabric.placement.nodes import facts_builder
from railwright.serving import routes, turns

LOW, HIGH = 0, 100


class Site(extending.Site):
    """Nodes, each with a pod of low priority."""

    def __init__(self, nodes) -> None:
        names = [item.metadata.name for item in nodes]
        super().__init__(nodes, [pod(f"low-{name}", on=name, priority=LOW) for name in names])
        self.verbs.decider.warm()

    def build_body(self, kind: int, group: str) -> bytes:
        """Return a request about a pod; pods of each kind request other memory."""
        spec = {"schedulingGroup": {"podGroupName": group}} if group else {}
        tree = msgspec.to_builtins(pod("p", priority=HIGH, **spec))
        tree["spec"]["containers"][0]["resources"]["requests"]["memory"] = str(kind)
        return json.dumps({"Pod": tree, "NodeNames": self.names}).encode()

    def free(self, name: str) -> None:
        self.state.cluster.remove_pod(f"uid-low-{name}")


def build_different_nodes():
    """Return nodes of which no two share an evaluation, so that a request about them yields."""
    return [node(f"a-{number:03}", "a", capacity={"cpu": str(129 + number)}) for number in range(400)]


@pytest.mark.parametrize("group", ["", "g"])
def test_changes_made_while_the_request_yields_are_in_the_answer(group):
    site, other = Site(build_different_nodes()), Site(build_different_nodes())
    body = site.build_body(1, group)
    steps = site.verbs.kube.filter_nodes(body)
    next(steps)
    for name in (site.names[0], site.names[-1]):  # one was evaluated, the other was not
        site.free(name)
        other.free(name)
    assert turns.complete(steps)[0] == other.verbs.kube.filter(body)


@pytest.mark.parametrize(
    ("spec", "looks"),
    [({}, [500, 100, 100, 100]), ({"nodeSelector": {"zone": "a"}}, [100] * 4)],
    ids=["any node", "a selector, which is compared with the labels of each node"],
)
def test_nodes_without_common_types_are_looked_at_in_small_steps(monkeypatch, spec, looks):
    """The first look at 400 nodes shows that they are of 400 types. None follows at nodes of a later step."""
    site, looked = extending.Site(build_different_nodes()), [0]
    read_inputs = facts_builder.FactsBuilder.read_inputs

    def count(builder: facts_builder.FactsBuilder, names):
        looked[-1] += len(names)
        return read_inputs(builder, names)

    monkeypatch.setattr(facts_builder.FactsBuilder, "read_inputs", count)
    steps = site.verbs.kube.filter_nodes(extending.build_body(pod("p"), site.names, **spec))
    looked.extend(0 for _ in steps)
    assert looked == looks


@pytest.mark.parametrize("is_warm", [False, True])
def test_the_nodes_are_evaluated_for_a_gang_that_waits_before_it_is_asked_about(is_warm):
    waiting = pod("p", group="g")
    site = extending.Site(build_different_nodes(), [waiting, pod("q", group="g")])
    assert len(site.state.waiting.list_gangs(site.state.cluster)) == 1
    if is_warm:
        assert list(site.verbs.decider.warm_for_waiting_gangs()), "in turns, as for a request"
        assert not list(site.verbs.decider.warm_for_waiting_gangs()), "once"
    body = extending.build_body(waiting, site.names)
    assert any(True for _ in site.verbs.kube.filter_nodes(body)) is not is_warm


class CompleteCaches:
    """Sources that have read everything."""

    def cache_problem(self, _stale_after: float | None = None) -> str:
        return ""


def is_evaluated(site: extending.Site, waiting) -> bool:
    """Return whether the first request about a pod is answered without steps."""
    return not any(True for _ in site.verbs.kube.filter_nodes(extending.build_body(waiting, site.names)))


@pytest.mark.parametrize("is_checked", [False, True])
def test_nodes_are_evaluated_for_a_gang_that_waits_before_the_extender_is_ready(monkeypatch, is_checked):
    monkeypatch.setattr(extender_main, "_FIRST_TURN_SECONDS", 60.0)  # the evaluation takes longer on a busy machine
    waiting = pod("p")
    site = extending.Site(build_different_nodes(), [waiting])
    if is_checked:
        assert not extender_main._find_cache_problem(CompleteCaches(), site.verbs.decider)
    assert is_evaluated(site, waiting) is is_checked


async def test_what_a_readiness_check_does_not_evaluate_in_its_turn_is_evaluated_later(monkeypatch):
    monkeypatch.setattr(extender_main, "_FIRST_TURN_SECONDS", 0.0)
    site = extending.Site(build_different_nodes(), [pod("p")])
    evaluations, evaluate = [], site.verbs.decider._evaluate_for_waiting_gangs

    def record_steps():
        evaluations.append(0)
        for step in evaluate():
            evaluations[-1] += 1
            yield step

    monkeypatch.setattr(site.verbs.decider, "_evaluate_for_waiting_gangs", record_steps)
    for _ in range(3):
        extender_main._find_cache_problem(CompleteCaches(), site.verbs.decider)
        assert evaluations == [1], "one turn, which ends after one step"
    await extender_main._warm(CompleteCaches(), site.verbs.decider)
    assert len(evaluations) == 1
    assert evaluations[0] > 2
    assert is_evaluated(site, pod("p"))


def test_nodes_without_victims_are_evaluated_in_turns_for_a_gang_that_was_just_planned():
    """kube-scheduler looks for victims right after it found no room, while nothing has changed."""
    site = Site(build_different_nodes())
    free = site.names[:50]
    for name in free:
        site.free(name)
    peers = [pod(f"p-{rank}", priority=HIGH, schedulingGroup={"podGroupName": "g"}) for rank in range(60)]
    for peer in peers:
        site.pods.upsert(peer)
    for peer in peers[:2]:
        site.filter(peer, free)
    asked = site.verbs.kube.filter_nodes(extending.build_body(peers[2], site.names))
    assert any(True for _ in asked)


def test_another_request_about_the_same_kind_may_run_while_the_first_yields():
    site = Site(build_different_nodes())
    steps = site.verbs.kube.filter_nodes(site.build_body(1, ""))
    next(steps)
    answer = site.verbs.kube.filter(site.build_body(1, ""))
    assert turns.complete(steps)[0] == answer
    assert len(json.loads(answer)["FailedNodes"]) == 400


def test_offers_are_of_one_moment_although_the_cluster_changes_between_turns():
    site, asked = extending.Site(leaves(a=80)), pod("p")
    whole = site.state.cluster.get_free(site.names[0])[GPU]
    task = msgspec.convert(extending.build_task(asked), volcano_wire.Task)
    nodes = [
        {"Name": name, "Idle": {"MilliCPU": number, "ScalarResources": {GPU: whole}}}
        for number, name in enumerate(site.names)
    ]
    body = msgspec.json.encode({"task": extending.build_task(asked), "nodes": nodes})
    amounts = turns.complete(volcano_wire.read_prioritize(body))[1]
    steps = scheduling_requests.build_volcano_request(task, amounts, site.policy, site.state)
    next(steps)
    for name in site.names:
        site.state.cluster.remove_node(name)
    offers = turns.complete(steps).offers
    assert [offer.idle[GPU] for offer in offers.values()] == [whole] * 80


def test_nodes_share_an_offer_only_if_equal_resources_are_free():
    site, asked = extending.Site(leaves(a=80)), pod("p")
    whole = site.state.cluster.get_free(site.names[0])[GPU]
    for name in site.names[:3]:
        site.state.cluster.upsert_pod(pod(f"on-{name}", on=name))
    task = msgspec.convert(extending.build_task(asked), volcano_wire.Task)
    idle = {"ScalarResources": {GPU: whole}}
    body = msgspec.json.encode({"task": {}, "nodes": [{"Name": name, "Idle": idle} for name in site.names]})
    amounts = turns.complete(volcano_wire.read_prioritize(body))[1]
    steps = scheduling_requests.build_volcano_request(task, amounts, site.policy, site.state)
    offers = turns.complete(steps).offers
    assert [offer.idle[GPU] for offer in offers.values()] == [0] * 3 + [whole] * 77
    assert len(set(map(id, offers.values()))) == 2


# --- a filter that would refuse every node waits briefly for our watch ----------------------------------------


@pytest.fixture
def cluster():
    return state.State(assume_seconds=30)


@pytest.fixture
def ask(cluster):
    """Send POST /scheduler/filter for a pod and the only node, at a time that does not pass."""
    fabric_policy = policy(required=True, domains=[LEAF])
    verbs = extending.Extender(cluster, lambda: fabric_policy, clock=lambda: 0.0)
    (handle,) = [route.handle for route in app.build_routes(verbs.decider, None) if route.path == "/scheduler/filter"]
    body = extending.build_body(pod("p"), ["only"])

    async def asked(*, at_once: bool = False):
        answer = handle(routes.Call(body, {}, {}, {}, ""))
        assert isinstance(answer, routes.Reply) == at_once
        return json.loads((answer if at_once else await answer).body)["NodeNames"]

    return asked


async def shown_after(cluster, seconds, rails):
    await asyncio.sleep(seconds)
    cluster.cluster.upsert_node(node("only", "leaf-0", rails_each=rails))


async def test_a_pod_asked_about_a_moment_before_its_event_is_not_refused(cluster, ask):
    cluster.cluster.upsert_node(node("only", "leaf-0", rails_each=0))
    task = asyncio.create_task(shown_after(cluster, 0.08, 1))
    assert await ask() == ["only"]
    await task


async def test_a_node_refused_just_before_is_not_chosen(cluster, ask):
    cluster.cluster.upsert_node(node("only", "leaf-0", rails_each=0))
    assert await ask() == []
    task = asyncio.create_task(shown_after(cluster, 0.03, 1))
    assert await ask() == ["only"]
    await task


async def test_pods_that_fit_nowhere_delay_the_scheduler_only_a_few_times(cluster, ask):
    cluster.cluster.upsert_node(node("only", "leaf-0", rails_each=0))
    retries_per_request, burst = 3, 9
    for _ in range(burst // retries_per_request):
        assert await ask() == []
    for _ in range(8):
        assert await ask(at_once=True) == []
