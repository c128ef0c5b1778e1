"""An extender that starts during a session of Volcano, and one that scores nodes for a preempting gang."""

import extending
from placing import LEAF, RESOURCES, node, pod, policy

TAKEN = ""
FULL = dict.fromkeys(("nvidia.com/gpu", *RESOURCES), 0)


class Door(extending.Site):
    """Two leaves of four nodes, with a gang of four seen and nothing announced."""

    def __init__(self) -> None:
        self.peers = [pod(f"job-worker-{index}", group="gang") for index in range(4)]
        super().__init__(
            [node(f"{leaf}-{index}", leaf) for leaf in "ab" for index in range(4)], self.peers, policy(domains=[LEAF])
        )

    def announce(self, index: int, on: str = "a-0", scope: str = "", **fields: object) -> str:
        return self.allocate(self.peers[index], on, scope, **fields)

    def scores(self, index: int, pipelined: dict[str, int]) -> dict[str, float]:
        """Return the scores of full nodes; on some of them a pod is pipelined to resources that others release."""
        task = extending.build_task(self.peers[index])
        whole = task["InitResreq"]
        nodes = [
            {
                "Name": name,
                "Idle": {"ScalarResources": FULL},
                "Allocatable": whole,
                "Releasing": whole if name in pipelined else None,
                "Pipelined": whole if name in pipelined else None,
            }
            for name in self.names
        ]
        return self.ask_volcano("prioritize", {"task": task, "nodes": nodes})["nodeScore"]


def test_a_gang_with_pods_placed_before_the_start_of_the_extender_is_rejected_once():
    door = Door()
    error_message = door.announce(2)
    assert "does not know where the gang's first pods are" in error_message
    assert not list(door.state.assumed)
    assert door.announce(3, "a-1") == TAKEN, "one is enough: a gang that lacks a pod is taken back whole"


def test_a_gang_observed_from_its_first_pod_is_accepted():
    door = Door()
    assert [door.announce(index, f"a-{index}") for index in range(4)] == [TAKEN] * 4


def test_after_a_session_of_its_scope_has_ended_every_gang_is_accepted():
    door = Door()
    door.close("east")
    assert door.announce(2, scope="west") != TAKEN
    assert Door().announce(2) != TAKEN
    assert door.announce(2, scope="east") == TAKEN


def test_bound_peers_and_peers_of_another_role_are_no_reason_to_reject():
    door = Door()
    door.state.cluster.upsert_pod(pod("job-worker-0", group="gang", on="a-0"))
    door.state.cluster.upsert_pod(pod("job-master-1", group="gang", annotations={}))
    assert door.announce(1, "a-1") == TAKEN


def test_a_pipelined_pod_is_not_rejected():
    assert Door().announce(2, Status=4) == TAKEN


def test_a_gang_that_preempts_is_sent_to_one_leaf_and_on_to_its_other_nodes():
    door = Door()
    first = door.scores(0, {})
    best = max(first, key=first.__getitem__)
    leaf = best[0]
    assert {name for name, score in first.items() if score == first[best]} == {f"{leaf}-{i}" for i in range(4)}
    door.announce(0, best, Status=4)
    second = door.scores(1, {best: 1})
    assert max(second, key=second.__getitem__) in {f"{leaf}-{i}" for i in range(4)} - {best}
    assert min(second[f"{leaf}-{i}"] for i in range(4) if f"{leaf}-{i}" != best) > second[best]


def test_sessions_that_began_during_an_outage_may_hold_unseen_pods():
    door = Door()
    door.close()
    door.verbs.decider.forget_sessions()
    assert door.announce(2) != TAKEN
    assert door.announce(2) == TAKEN, "once a gang"


def test_forgetting_drops_the_assumed_pods():
    door = Door()
    door.close()
    assert door.announce(2) == TAKEN
    door.verbs.decider.forget()
    assert len(door.state.assumed) == 0
    assert len(door.state.cluster.pods) == 4
