"""Recreated members of a gang get the domain of their segment, after others were lost or have ended."""

import msgspec
import placing
import pytest
from hypothesis import given
from hypothesis import strategies as st
from placing import RememberingEngine, build_leaves, build_pod, build_request

from railwright.fabric.workloads import kubeflow, kubernetes, membership

POLICY = placing.change_fabric(placing.build_policy(), nvlink_segment=4)
JOBS = next(kind for kind in membership.SIZE_KINDS if kind.name == "jobs.batch")
INDEX = kubernetes.INDEX
FORMS = ("Indexed Job", "pods of a PodGroup", "elastic gang", "PyTorchJob")


def build_member(form: str, rank: int, *, on: str = "", phase: str = "", uid: str = ""):
    """Return one of the eight pods of a gang."""
    match form:
        case "Indexed Job":
            built = build_pod(f"g-{rank}-x{uid or 'abcd'}", on=on)
            labels = {kubernetes.JOB: "g", INDEX: str(rank)}
        case "PyTorchJob":  # without a master
            built = build_pod(f"g-worker-{rank}", on=on)
            labels = {kubeflow.JOB: "g", kubeflow.OPERATOR: "pytorchjob-controller", kubeflow.REPLICA_INDEX: str(rank)}
        case _:
            built, labels = build_pod(f"g-{rank}", group="g", on=on), {}
    metadata = {"labels_or_none": {**built.metadata.labels, **labels}, "uid": f"uid-{rank}-{uid}"}
    changed = placing.change_pod(built, metadata=metadata)
    return placing.change_pod(changed, status={"phase": phase}) if phase else changed


def build_cluster(form: str, *, succeeded: int = 0):
    least = {"elastic gang": 4, "pods of a PodGroup": 8}.get(form)
    state = placing.build_cluster(build_leaves(a=4, b=4, c=4), least={"train/g": least} if least else {})
    if form == "Indexed Job":
        tree = {
            "metadata": {"name": "g", "namespace": "train", "uid": "g"},
            "spec": {"parallelism": 8, "completions": 8, "template": {"metadata": {}}},
            "status": {"succeeded": succeeded},
        }
        state.sizes.upsert(JOBS, msgspec.convert(tree, JOBS.view))
    return state


def find_node(rank: int) -> str:
    return f"{'ab'[rank // 4]}-{rank % 4:02}"


@pytest.mark.parametrize("form", FORMS)
@given(data=st.data())
def test_a_recreated_pod_is_refused_outside_the_domain_of_its_segment(form, data):
    """Some have succeeded, and their pods exist or were deleted; others were lost and come back in any order."""
    ranks = st.sets(st.integers(0, 6 if form == "elastic gang" else 7), max_size=5)
    ended, lost = data.draw(ranks, label="ended"), data.draw(ranks, label="lost")
    is_deleted = form == "Indexed Job" and data.draw(st.booleans(), label="the pods that ended are deleted")
    order = data.draw(st.permutations(sorted(lost - ended)), label="order")
    check_recreated(form, ended, lost, order, is_deleted=is_deleted)


def check_recreated(form, ended, lost, order, *, is_deleted=False):
    state = build_cluster(form, succeeded=len(ended))
    for rank in range(8):
        if rank in ended and not is_deleted:
            state.upsert_pod(build_member(form, rank, on=find_node(rank), phase="Succeeded"))
        elif rank not in ended | lost:
            state.upsert_pod(build_member(form, rank, on=find_node(rank)))
    present = set(range(8)) - ended - lost
    for rank in order:
        waiting = build_member(form, rank, uid="again")
        state.upsert_pod(waiting)
        engine = RememberingEngine(state)
        refused = engine.find_refusals(build_request(waiting, state.nodes, POLICY))
        if present & {*range(4)} and present & {*range(4, 8)}:  # otherwise nothing holds a segment, or tells its start
            assert {name[0] for name in state.nodes} - {name[0] for name in refused} == {find_node(rank)[0]}
        state.upsert_pod(build_member(form, rank, on=find_node(rank), uid="again"))
        present.add(rank)


def test_a_failed_pod_is_not_an_ended_member_of_its_gang_once_it_is_recreated():
    state = build_cluster("Indexed Job")
    for rank in range(8):
        state.upsert_pod(build_member("Indexed Job", rank, on=find_node(rank), phase="Failed", uid="old"))
    state.upsert_pod(build_member("Indexed Job", 3))
    gang = membership.find_gang(build_member("Indexed Job", 3))
    assert {pod.rank.index for pod in state.list_ended(gang)} == {*range(8)} - {3}
    assert state.get_gang_size(gang, observed=1) == 8, "a Job creates failed pods again"
    state.replace_pods([build_member("Indexed Job", 3)])
    assert not state.list_ended(gang)


@pytest.mark.parametrize("form", ["pods of a PodGroup", "PyTorchJob", "Indexed Job"])
def test_a_gang_does_not_wait_for_succeeded_pods(form):
    state = build_cluster(form, succeeded=6)
    if form == "PyTorchJob":
        kind = next(kind for kind in membership.SIZE_KINDS if kind.name == "pytorchjobs.kubeflow.org")
        spec = {"pytorchReplicaSpecs": {"Worker": {"replicas": 8, "template": {}}}}
        tree = {"metadata": {"name": "g", "namespace": "train", "uid": "g"}, "spec": spec}
        state.sizes.upsert(kind, msgspec.convert(tree, kind.view))
    for rank in range(6):
        state.upsert_pod(build_member(form, rank, on=find_node(rank), phase="Succeeded"))
    waiting = build_member(form, 6)
    state.upsert_pod(waiting)
    assert state.get_gang_size(membership.find_gang(waiting), observed=1) == 2, "7 does not exist yet"
    decision = RememberingEngine(state).score(build_request(waiting, state.nodes, POLICY))
    assert decision.gang.size == 2


def test_a_forged_index_or_random_suffix_is_not_used_as_an_index():
    state = placing.build_cluster(build_leaves(a=4, b=4))
    forged = placing.change_pod(
        build_member("Indexed Job", 0),
        metadata={"labels_or_none": {**build_member("Indexed Job", 0).metadata.labels, INDEX: "9" * 60}},
    )
    hashed = [build_pod(f"h-{suffix}", group="h") for suffix in ("abc12", "xyz99")]
    for waiting in (forged, *hashed):
        state.upsert_pod(waiting)
        engine = RememberingEngine(state)
        request = build_request(waiting, state.nodes, POLICY)
        assert engine.find_refusals(request) == {}
        assert engine.score(request).plan.is_complete
