"""Announced pods that the watch has not delivered yet: the duration and effect of counting them."""

import extending
import pytest
from placing import GPU, RESOURCES, build_leaves, build_pod, build_policy

from railwright.fabric.placement.state import assumed_pods

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

    def expire(self, now: float) -> None:
        self.now = now
        self.state.assumed.expire(now, 30)


@pytest.fixture
def site():
    return Site()


def test_announcements_of_unknown_pods_take_no_devices(site):
    for number, name in enumerate(NODES * 20):
        assert site.announce(f"forged-{number}", name) == {"errorMessage": ""}
    assert site.list_free() == NODES


@pytest.mark.parametrize("is_listed", [False, True])
def test_an_announcement_counts_from_when_the_watch_shows_its_pod(site, is_listed):
    site.announce("uid-early", NODES[0])
    site.pods.replace([build_pod("early")]) if is_listed else site.pods.upsert(build_pod("early"))
    site.pods.upsert(build_pod("late"))
    site.announce("uid-late", NODES[1])
    assert site.list_free() == NODES[2:]
    site.pods.replace([build_pod("early"), build_pod("late")])
    assert site.list_free() == NODES[2:]


def test_an_announced_pod_uses_the_devices_of_its_object(site):
    site.pods.upsert(build_pod("small", gpus=1, rails=0))
    site.announce("uid-small", NODES[0], units={GPU: 8, RESOURCES[0]: 99})
    site.announce("uid-other", NODES[1], units={RESOURCES[0]: 99})
    site.pods.upsert(build_pod("other", gpus=0, rails=0))
    free = [site.state.assumed.get(uid).requests.get(RESOURCES[0], 0) for uid in ("uid-small", "uid-other")]
    assert free == [0, 0]


def test_a_pod_that_is_bound_elsewhere_frees_the_announced_node(site):
    site.pods.upsert(build_pod("moved"))
    site.announce("uid-moved", NODES[0])
    assert NODES[0] not in site.list_free()
    site.pods.upsert(build_pod("moved", on=NODES[3]))
    assert site.list_free() == NODES[:3]


def test_an_unseen_pod_expires_after_seconds_and_a_seen_one_after_assume_seconds(site):
    site.pods.upsert(build_pod("seen"))
    site.announce("uid-seen", NODES[0])
    site.announce("unseen", NODES[1])
    site.close()
    site.expire(assumed_pods.UNSEEN_SECONDS + 0.1)
    assert [entry.uid for entry in site.state.assumed] == ["uid-seen"]
    site.expire(31)
    assert len(site.state.assumed) == 0


def test_unseen_pods_are_limited_in_number_and_known_ones_keep_their_place(site):
    site.pods.upsert(build_pod("seen"))
    site.announce("uid-seen", NODES[0])
    for number in range(5 * assumed_pods.MIN_UNSEEN):
        site.announce(f"forged-{number}", NODES[1])
    assert site.state.assumed.unseen == assumed_pods.MIN_UNSEEN
    assert site.state.assumed.get("uid-seen") is not None
    assert site.state.assumed.get(f"forged-{5 * assumed_pods.MIN_UNSEEN - 1}") is not None


@pytest.mark.parametrize("verb", ["prioritize", "predicate"])
def test_a_gang_is_free_again_when_volcano_asks_in_a_later_session_about_a_pod_that_it_announced(site, verb):
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
