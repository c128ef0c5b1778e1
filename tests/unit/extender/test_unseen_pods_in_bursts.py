"""Pods that kube-scheduler has just placed count on the nodes that the extender scored best, before they are seen."""

import random

import claimed
import devices
import extending
import pytest
from placing import build_pod_group, node, pod

from extender import kube_scheduler, scheduling_requests, unseen_pods
from railwright.fabric.placement.state import gang_status
from railwright.fabric.workloads import volcano

NODES = [f"{leaf}-{number}" for leaf in "ab" for number in range(3)]
SIZE = 4


class Asked(extending.Site):
    """A gang for kube-scheduler: two of its pods fit on a node, three nodes are on a leaf."""

    def __init__(self) -> None:
        super().__init__([node(name, name[0], rails_each=2) for name in NODES])
        self.state.cluster.upsert_size(volcano.POD_GROUPS, build_pod_group("train", "g", SIZE))

    def filter(self, peer, names=None, **spec) -> list[str]:
        self.pods.upsert(peer)
        return super().filter(peer, names, **spec)

    def score(self, peer, names=None) -> dict[str, int]:
        self.filter(peer, names)
        return super().score(peer, names)


def build_peer(rank, **kinds):
    return pod(f"w-{rank}", group="g", gpus=4, **kinds)


@pytest.fixture
def cluster():
    return Asked()


def test_a_pod_counts_as_placed_as_soon_as_it_was_scored(cluster):
    cluster.score(build_peer(0))
    assert cluster.count_remaining(build_peer(1)) == SIZE - 1
    assert cluster.count_remaining(build_peer(2)) == SIZE - 2


def test_an_expected_pod_does_not_make_filter_refuse_a_node(cluster):
    for rank in range(SIZE):
        assert cluster.filter(build_peer(rank), **extending.PREFERRING) == NODES
        cluster.score(build_peer(rank))


def test_an_expectation_ends_after_a_second(cluster):
    cluster.score(build_peer(0))
    cluster.now += unseen_pods.BEST_NODES_SECONDS + 0.01
    assert cluster.count_remaining(build_peer(1)) == SIZE


def test_an_expectation_ends_when_the_pod_is_seen_elsewhere_or_deleted(cluster):
    cluster.score(build_peer(0))
    cluster.state.cluster.upsert_pod(build_peer(0, on="b-2"))
    scores = cluster.score(build_peer(1))
    assert max(scores, key=scores.__getitem__)[0] == "b", "beside its peer, not on the leaf that was expected"
    cluster.state.cluster.remove_pod("uid-w-0")
    cluster.state.cluster.remove_pod("uid-w-1")
    assert cluster.count_remaining(build_peer(2)) == SIZE


def test_a_gang_that_is_tried_again_has_no_expected_nodes(cluster):
    cluster.score(build_peer(0))
    cluster.score(build_peer(1))
    assert cluster.count_remaining(build_peer(0)) == SIZE


def test_a_node_that_is_offered_although_it_would_be_full_is_not_expected(cluster):
    for name in NODES:
        if name[0] == "a":  # room for one pod each, so that the gang is planned on leaf b
            cluster.state.cluster.upsert_pod(pod(f"other-{name}", gpus=4, on=name))
    only = ["b-0", "b-1", "b-2"]
    for rank in range(2):
        cluster.state.cluster.upsert_pod(pod(f"more-{rank}", gpus=4, on=f"b-{rank}"))
        cluster.state.cluster.upsert_pod(pod(f"full-{rank}", gpus=4, on=f"b-{rank}"))
    cluster.score(build_peer(0), only[2:])
    [guess] = cluster.verbs.decider.unseen._guesses.values()
    assert guess.best_nodes == ("b-2",)
    cluster.state.cluster.upsert_pod(pod("last", gpus=4, on="b-2"))
    assert cluster.count_remaining(build_peer(1), only[2:]) == SIZE, "one pod of room, and it is offered to this one"


def test_a_pod_without_a_gang_is_not_expected(cluster):
    cluster.score(pod("lone", gpus=4))
    assert not cluster.verbs.decider.unseen._guesses


GANGS, LEAVES, LEAF_NODES, LAG = 8, 4, 4, 4
RAILS = {"low": (0, 1), "high": (2, 3)}


def place_gangs(seed) -> tuple[int, int]:
    """Place gangs that fill the cluster, pods of several in turns, each seen some requests after it was placed.

    Returns the gangs on one leaf, and the requests before which a pod was placed that was neither seen nor expected.
    """
    names = [f"{leaf}-{number}" for leaf in range(LEAVES) for number in range(LEAF_NODES)]
    asked = extending.Site([claimed.build_node(name, name[0]) for name in names], (), claimed.policy())
    known = asked.state
    claimed.name_devices(known.cluster)
    offered = devices.read_slices(*(tree for name in names for tree in devices.build_slices(name)))
    known.cluster.change_devices(lambda inventory: inventory.slice_sink.replace(offered))
    for name, rails in RAILS.items():
        template = claimed.build_template(name, rails)
        known.cluster.change_templates(lambda inventory, template=template: inventory.template_sink.upsert(template))
    chance = random.Random(seed)  # noqa: S311 - the same clusters each time
    ranks = [(f"g{gang}", rank) for gang in range(GANGS) for rank in range(LEAF_NODES)]
    peers = [build_claiming(group, rank) for group, rank in ranks]
    for peer, _ in peers:
        known.cluster.upsert_pod(peer)
    places, unseen, uncounted = {}, [], 0
    order = sorted(range(len(peers)), key=lambda number: number + chance.gauss(0, 3))
    for position in order:
        peer, template = peers[position]
        asked.now += 0.02
        while len(unseen) > LAG:
            see(known, unseen.pop(0), places)
        free = [name for name in names if (name, template) not in places.values()]
        uncounted += bool(list_uncounted(asked, peer, free, places))
        left = asked.filter(peer, free)
        scores = asked.score(peer, left) if len(left) > 1 else {left[0]: 0}
        best = [name for name, score in scores.items() if score == max(scores.values())]
        places[peer.metadata.name] = (chance.choice(best), template)
        unseen.append(peer.metadata.name)
    leaves = {group: {places[f"{group}-{rank}"][0][0] for rank in range(LEAF_NODES)} for group, _ in ranks}
    return sum(len(used) == 1 for used in leaves.values()), uncounted


def build_claiming(group, rank):
    template = sorted(RAILS)[int(group[1:]) % 2]
    return claimed.build_pod(f"{group}-{rank}", templates=(template,), group=group), template


def list_uncounted(asked, peer, free, places) -> set[str]:
    cluster = asked.state.cluster
    pod, nodes, *_ = kube_scheduler.read_arguments(extending.build_body(peer, free))
    request = scheduling_requests.build_kube_request(pod, nodes, claimed.policy(), asked.state)
    seen = {known.key for known in cluster.pods.values() if gang_status.find_node(known, cluster)}
    return {f"train/{name}" for name in places} - seen - {known.key for known in asked.verbs.kube.list_unseen(request)}


def see(known, name, places):
    """Show the pod bound, and its claim allocated."""
    on, template = places[name]
    first_gpu = 2 * RAILS[template][0]
    tree = claimed.build_claim(
        f"{name}-claim", RAILS[template], gpus=2, pod_uid=f"uid-{name}", on=on, entry="railwright", first_gpu=first_gpu
    )
    known.cluster.upsert_claim(devices.read_claim(tree))
    group = name.partition("-")[0]
    known.cluster.upsert_pod(claimed.build_pod(name, templates=(template,), group=group, on=on))


def test_gangs_in_a_burst_whose_last_pods_are_not_seen_get_one_leaf_each():
    results = [place_gangs(seed) for seed in range(6)]
    assert [together for together, _ in results] == [GANGS] * 6
    requests = 6 * GANGS * LEAF_NODES
    assert sum(uncounted for _, uncounted in results) < requests / 4
