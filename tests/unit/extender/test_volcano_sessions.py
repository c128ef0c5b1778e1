"""Sessions of Volcano: one that preempts, and several for one gang."""

import claimed
import devices
import extending
from hypothesis import given
from hypothesis import strategies as st
from placing import LEAF, TWO_SIDED, build_node, build_pod, build_policy

from railwright.fabric.policy import model

TAKEN = ""


class PreemptingSite(extending.Site):
    """Return two leaves of four full nodes, with a known gang of four and no announced pod."""

    def __init__(self) -> None:
        self.peers = [build_pod(f"job-worker-{index}", group="gang") for index in range(4)]
        nodes = [build_node(f"{leaf}-{index}", leaf) for leaf in "ab" for index in range(4)]
        victims = [build_pod(f"on-{node.metadata.name}", on=node.metadata.name) for node in nodes]
        super().__init__(nodes, [*self.peers, *victims], build_policy(domains=[LEAF]))

    def announce(self, index: int, on: str = "a-0", scope: str = "", **fields: object) -> str:
        return self.allocate(self.peers[index], on, scope, **fields)

    def scores(self, index: int) -> dict[str, float]:
        nodes = [{"Name": name} for name in self.names]
        asked = {"task": extending.build_task(self.peers[index]), "nodes": nodes}
        return self.ask_volcano("prioritize", asked)["nodeScore"]


def test_a_preempting_gang_stays_on_one_leaf():
    site = PreemptingSite()
    first = site.scores(0)
    best = max(first, key=first.__getitem__)
    leaf = best[0]
    assert {name for name, score in first.items() if score == first[best]} == {f"{leaf}-{i}" for i in range(4)}
    site.announce(0, best, Status=4)
    second = site.scores(1)
    assert max(second, key=second.__getitem__) in {f"{leaf}-{i}" for i in range(4)} - {best}
    assert min(second[f"{leaf}-{i}"] for i in range(4) if f"{leaf}-{i}" != best) > second[best]


# --- a gang that is tried in several sessions -----------------------------------------------------------------


class Volcano(extending.Site):
    """Volcano's allocate, for a gang of whole nodes that others still hold."""

    def __init__(self, size: int, leaves: dict[str, int], given_: model.Policy) -> None:
        names = [f"{leaf}-{number}" for leaf, count in leaves.items() for number in range(count)]
        super().__init__(
            [build_node(name, name[0]) for name in names],
            [build_pod(f"on-{name}", on=name) for name in names],
            given_,
            now=0.0,
        )
        self.peers = [build_pod(f"job-worker-{rank}", group="gang") for rank in range(size)]
        self.add_gang(self.peers, "gang")
        self.close()

    def run_session(self, idle: set[str]) -> list[str]:
        """Return one session with these nodes idle and all others being released; the nodes by rank."""
        self.free(idle)
        left, nodes = dict.fromkeys(self.names), []
        for rank in range(len(self.peers)):
            candidates = [name for name in left if name in idle] or list(left)
            best = self.best(rank, candidates) if len(candidates) > 1 else candidates[0]
            self.event(rank, best, extending.ALLOCATED if best in idle else extending.PIPELINED)
            nodes.append(best)
            del left[best]
        self.close()
        return nodes

    def close(self, scope: str = "") -> None:
        self.now += 1.0
        super().close(scope)

    def free(self, names: set[str]) -> None:
        for name in names:
            self.state.cluster.remove_pod(f"uid-on-{name}")

    def best(self, rank: int, candidates: list[str]) -> str:
        body = {"task": extending.build_task(self.peers[rank]), "nodes": [{"Name": name} for name in candidates]}
        scores = self.ask_volcano("prioritize", body)["nodeScore"]
        return max(sorted(scores), key=scores.__getitem__)

    def event(self, rank: int, on: str, status: int) -> None:
        assert self.allocate(self.peers[rank], on, Status=status) == ""


def leaves_of(names: list[str]) -> str:
    return "".join(name[0] for name in names)


def test_committed_pods_count_as_placed_before_the_watch_shows_their_binding():
    volcano = Volcano(3, {"a": 4, "b": 3}, build_policy(domains=[LEAF]))
    everything = set(volcano.names)
    volcano.run_session({"a-0", "a-1"})  # of an elastic job: the first two are committed, the third was never allocated
    volcano.free(everything)
    rest = sorted(everything - {"a-0", "a-1"})
    assert volcano.best(2, rest)[0] == "a"
    volcano.event(2, "a-2", extending.ALLOCATED)
    volcano.close()
    assert volcano.best(2, rest)[0] == "a", "asked again, as its binding failed: that was another session"


def test_a_gang_that_is_tried_again_frees_the_nodes_of_its_discarded_session():
    volcano = Volcano(3, {"a": 2, "b": 2}, build_policy(domains=[LEAF]))
    volcano.run_session({"a-0", "a-1"})
    assert {known.node for known in volcano.state.assumed} == {"a-0", "a-1"}
    volcano.best(0, ["b-0", "b-1"])
    assert not len(volcano.state.assumed)


@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    size=st.integers(2, 6),
    two_sided=st.booleans(),
    data=st.data(),
)
def test_discarded_sessions_do_not_affect_later_ones(sizes, size, two_sided, data):
    given_ = build_policy(domains=[LEAF], shapes=[TWO_SIDED] if two_sided else ())
    leaves = dict(zip("abcd", sizes, strict=False))
    size = min(size, sum(sizes))
    fresh, tried = (Volcano(size, leaves, given_) for _ in range(2))
    idle: set[str] = set()
    for more in data.draw(st.lists(st.sets(st.sampled_from(fresh.names)), max_size=3)):
        if len(idle | more) < size:
            idle |= more
            tried.run_session(idle)
    free = idle | data.draw(st.sets(st.sampled_from(fresh.names), min_size=size))
    assert leaves_of(tried.run_session(free)) == leaves_of(fresh.run_session(free))


# --- devices of ResourceSlices, which Volcano's session does not count ----------------------------------------


class SiteWithClaims(extending.Site):
    """A node whose rails and GPUs are in slices."""

    def __init__(self) -> None:
        super().__init__(
            [claimed.build_claimed_node("n1", "a"), build_node("bare", "a", rails_each=0)], (), claimed.policy()
        )
        claimed.name_devices(self.state.cluster)
        claimed.add_slices(self.state.cluster, "n1")
        claimed.get_sink(self.state, "ResourceClaimTemplate").upsert(claimed.build_template("t", (0, 1)))
        for scope in ("east", "west"):
            self.close(scope)

    def create(self, name: str):
        created = claimed.build_claiming_pod(name)
        self.pods.upsert(created)
        return created

    def has_room(self, of) -> bool:
        """True if the node with devices of slices is the planned one for a pod, not only a better one."""
        offered = [{"Name": name} for name in ("n1", "bare")]
        scores = self.ask_volcano("prioritize", {"task": extending.build_task(of), "nodes": offered})["nodeScore"]
        return scores["n1"] - scores["bare"] > 500


def test_devices_of_slices_are_busy_only_while_an_announced_pod_or_a_claim_holds_them():
    site = SiteWithClaims()
    first, second = site.create("first"), site.create("second")
    assert site.has_room(first)
    assert site.allocate(first, "n1", "east") == TAKEN
    assert not site.has_room(second)
    site.ask_volcano("deallocate", {"task": extending.build_task(first)}, "east")
    assert site.has_room(second)
    held = claimed.build_claim("held", (0, 1), gpus=8, pod_uid="uid-other", on="n1")
    site.state.cluster.change_devices(lambda known: known.claim_sink.upsert(devices.read_claim(held)))
    assert not site.has_room(second)
