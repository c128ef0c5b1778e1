"""A remembered plan and board against a decision by somebody who remembers nothing."""

from hypothesis import given
from hypothesis import strategies as st
from placing import asked, book, entry, fleet_of, leaves, pod, policy

from fabric.placement import decide

POLICY = policy(oversubscription=[1, 7])


@st.composite
def clusters(draw):
    """Leaves of more than a full offer, some nodes taken."""
    sizes = {f"{spine}{leaf}": draw(st.integers(1, 40)) for spine in "ab" for leaf in range(4)}
    nodes = leaves(**sizes, c0=100)
    taken = draw(st.sets(st.integers(0, len(nodes) - 1), max_size=60))
    return nodes, [pod(f"other-{i}", on=nodes[i].metadata.name) for i in taken]


@given(clusters(), st.integers(2, 40), st.data())
def test_a_desk_that_remembers_decides_like_one_that_does_not(cluster, size, data):
    nodes, others = cluster
    state, accounts = fleet_of(nodes, others, {"train/gang": size}), book()
    desk = decide.Desk(state, accounts)
    for rank in range(min(size, 8)):
        task = pod(f"job-{rank}", group="gang")
        free = [name for name in state.nodes if not state.used(name) and not list(accounts.on_node(name))]
        if not free:
            return
        question = asked(task, free, POLICY)
        remembered, fresh = desk.decide(question), decide.decide(question, state, accounts)
        assert len(remembered.plan.leaves) == len(fresh.plan.leaves)
        assert remembered.plan.bandwidth == fresh.plan.bandwidth
        assert sorted(remembered.scores.values()) == sorted(fresh.scores.values())
        chosen = data.draw(st.sampled_from(sorted(free)), label="the scheduler's choice") if rank == 3 else None
        best = chosen or max(remembered.scores, key=lambda name: (remembered.scores[name], name))
        accounts.allocate(entry(task, best))
        if data.draw(st.integers(0, 4)) == 0 and others:
            state.remove_pod(others.pop().metadata.uid)
        if data.draw(st.integers(0, 6)) == 0:
            accounts.deallocate(task.metadata.uid)


def test_a_board_follows_nodes_and_pods_that_come_change_and_go():
    state, accounts = fleet_of(leaves(a=3, b=3)), book()
    desk = decide.Desk(state, accounts)

    def scores():
        question = asked(pod("p"), list(state.nodes), POLICY)
        found, fresh = desk.decide(question), decide.decide(question, state, accounts)
        assert found.scores == fresh.scores
        return found.scores

    before = scores()
    state.upsert_pod(pod("x", on="a-00"))
    assert scores()["a-00"] < before["a-00"]
    state.remove_pod("uid-x")
    assert scores() == before
    state.remove_node("b-02")
    assert "b-02" not in scores()
    for each in leaves(c=2):
        state.upsert_node(each)
    assert set(scores()) == {"a-00", "a-01", "a-02", "b-00", "b-01", "c-00", "c-01"}
    accounts.allocate(entry(pod("y"), "c-00"))
    assert scores()["c-00"] < scores()["c-01"]
