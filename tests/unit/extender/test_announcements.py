"""Pods that Volcano announces: the duration and effect of counting them."""

import extending
import pytest
from placing import GPU, RESOURCES, build_leaves, build_pod, build_policy

NODES = [f"a0-{number:02}" for number in range(4)]
UNITS = {GPU: 8, **dict.fromkeys(RESOURCES, 1)}


class Site(extending.Site):
    """Return four nodes of one leaf, each with one device of a rail."""

    def __init__(self):
        super().__init__(build_leaves(a0=4), (), build_policy(), now=0.0)
        self.close()

    def announce(self, uid: str, node: str, *, job: str = "train/job", units=None) -> dict:
        scalars = {name: 1000 * count for name, count in (units or UNITS).items()}
        task = {"UID": uid, "Namespace": "train", "Name": uid, "Job": job, "NodeName": node, "Status": 2}
        return self.ask_volcano("allocate", {"task": {**task, "InitResreq": {"ScalarResources": scalars}}})

    def list_free(self) -> list[str]:
        """Return the nodes whose devices are not announced for a known pod."""
        return [
            name
            for name in NODES
            if not self.state.assumed.list_on_node(name) and not self.state.cluster.get_used(name)
        ]


@pytest.fixture
def site():
    return Site()


def test_announcements_of_unknown_pods_are_ignored(site):
    assert site.announce("uid-forged", NODES[0]) == {"errorMessage": ""}
    site.pods.upsert(build_pod("forged"))
    assert site.list_free() == NODES
    assert len(site.state.assumed) == 0


def test_an_announced_pod_counts_with_the_requests_of_its_object(site):
    site.pods.upsert(build_pod("small", gpus=1, rails=0))
    site.announce("uid-small", NODES[0], units={GPU: 8, RESOURCES[0]: 99})
    assert site.state.assumed.get("uid-small").requests.get(RESOURCES[0], 0) == 0


@pytest.mark.parametrize("verb", ["prioritize", "predicate"])
def test_a_gang_is_no_longer_assumed_when_a_later_session_asks_about_one_of_its_pods(site, verb):
    pods = [build_pod(name, group="job") for name in ("one", "two")]
    for pod, node in zip(pods, NODES, strict=False):
        site.pods.upsert(pod)
        site.allocate(pod, node)
    candidates = {"node": {"Name": NODES[2]}} if verb == "predicate" else {"nodes": [{"Name": NODES[2]}]}
    request = {"task": extending.build_task(pods[0])} | candidates
    site.ask_volcano(verb, request)
    assert site.list_free() == NODES[2:], "in this session they are placed"
    site.close()
    site.ask_volcano(verb, request)
    assert site.list_free() == NODES


# --- each scheduler counts its own ----------------------------------------------------------------------------


def test_a_pod_assumed_by_one_scheduler_does_not_block_its_node_for_another(site):
    """Two schedulers can assign one rail twice, so each pool of nodes needs a single scheduler."""
    own, theirs = build_pod("mine"), build_pod("theirs")
    for created in (own, theirs):
        site.pods.upsert(created)
    assert site.allocate(own, NODES[0], "red") == ""
    assert site.filter(theirs, NODES[:1]) == NODES[:1]
    task = extending.build_task(theirs)
    assert site.ask_volcano("predicate", {"task": task, "node": {"Name": NODES[0]}}) == {"status": "", "code": 0}
    assert site.allocate(theirs, NODES[0], "blue") == ""
