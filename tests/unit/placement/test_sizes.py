"""The number of pods of a gang: its sources in their order (interface.md 7.1), for the pods of this gang only."""

import pathlib

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from railwright.cluster import resources
from railwright.fabric import views
from railwright.fabric.placement.state import cluster_state, declared_sizes
from railwright.fabric.workloads import frameworks, membership

RECORDED = yaml.safe_load((pathlib.Path(__file__).parents[2] / "data" / "pods.yaml").read_text())
KINDS = {kind.name: kind for kind in membership.SIZE_KINDS}
JOBS = KINDS["jobs.batch"]
STATEFUL_SETS = KINDS["statefulsets.apps"]
REPLICA_SETS = KINDS["replicasets.apps"]
VOLCANO_JOBS = KINDS["jobs.batch.volcano.sh"]
PYTORCH_JOBS = KINDS["pytorchjobs.kubeflow.org"]
TF_JOBS = KINDS["tfjobs.kubeflow.org"]
XGBOOST_JOBS = KINDS["xgboostjobs.kubeflow.org"]
PADDLE_JOBS = KINDS["paddlejobs.kubeflow.org"]
JAX_JOBS = KINDS["jaxjobs.kubeflow.org"]
MPI_JOBS = KINDS["mpijobs.kubeflow.org"]
MPI_JOBS_V1 = KINDS["mpijobs.v1.kubeflow.org"]
VOLCANO_POD_GROUPS = KINDS["podgroups.scheduling.volcano.sh"]
PLUGINS_POD_GROUPS = KINDS["podgroups.scheduling.x-k8s.io"]
JOB_SET = {"jobset.sigs.k8s.io/jobset-name": "js", "jobset.sigs.k8s.io/job-index": "2"}


def read_recorded(name: str) -> views.Pod:
    """Return a pod as a real controller made it."""
    return msgspec.convert(RECORDED[name], views.Pod)


def pod(labels=None, annotations=None, spec=None, owner=None, name="p-0") -> views.Pod:
    metadata = {"name": name, "namespace": "ns", "uid": name, "labels": labels or {}, "annotations": annotations or {}}
    if owner:
        metadata["ownerReferences"] = [{**owner, "controller": True}]
    return msgspec.convert({"metadata": metadata, "spec": spec or {}}, views.Pod)


def obj(name: str, spec: dict, *, namespace="ns", uid="u1", status=None) -> dict:
    return {"metadata": {"name": name, "namespace": namespace, "uid": uid}, "spec": spec, "status": status or {}}


def read(kind: frameworks.SizeKind, tree: dict | views.PodGroup) -> frameworks.Workload | views.PodGroup:
    return tree if isinstance(tree, views.PodGroup) else msgspec.convert(tree, kind.view)


def group(least: int, name="pg", namespace="ns") -> views.PodGroup:
    tree = {"metadata": {"name": name, "namespace": namespace}, "spec": {"minMember": least}}
    return msgspec.convert(tree, views.PodGroup)


def size(of: views.Pod, *reports: tuple[frameworks.SizeKind, dict | views.PodGroup]) -> int:
    state = cluster_state.ClusterState()
    state.upsert_pod(of)
    for kind, tree in reports:
        state.sizes.upsert(kind, read(kind, tree))
    return state.get_gang_size(membership.find_gang(of), observed=1)


def types(**counts: int | None) -> dict:
    return {name: {"replicas": count, "template": {}} for name, count in counts.items()}


def build_controlled_pod(kind: str, name: str) -> views.Pod:
    """Return a pod that an object controls."""
    return pod(owner={"kind": kind, "name": name, "uid": "u1"})


def build_kubeflow_pod(operator: str, name: str = "x") -> views.Pod:
    """Return a pod of a job of Kubeflow."""
    prefix = "training.kubeflow.org"
    return pod({f"{prefix}/job-name": name, f"{prefix}/operator-name": f"{operator}-controller"})


def build_job(labels: dict, size: int, name: str = "j") -> dict:
    """Return a Job whose pods have these labels."""
    return obj(name, {"parallelism": size, "template": {"metadata": {"labels": labels}}})


OF_JOB = pod({"batch.kubernetes.io/job-name": "j"})
OF_GROUP = {"scheduling.x-k8s.io/pod-group": "pg"}
PYTORCH = obj("torch", {"pytorchReplicaSpecs": types(Master=None, Worker=15)}, namespace="recorded")
FLOW = obj("flow", {"tfReplicaSpecs": types(Chief=1, PS=2, Worker=4)}, namespace="recorded")
TASKS = obj("vj", {"tasks": [{"replicas": 1}, {"replicas": 16}]})
SIZES = {
    "Job": (OF_JOB, JOBS, obj("j", {"parallelism": 8}), 8),
    "Job with fewer completions": (OF_JOB, JOBS, obj("j", {"parallelism": 8, "completions": 6}), 6),
    "Job of which some have succeeded": (
        OF_JOB,
        JOBS,
        obj("j", {"parallelism": 8, "completions": 8}, status={"succeeded": 5}),
        3,
    ),
    "Job of a JobSet": (
        pod(JOB_SET | {"batch.kubernetes.io/job-name": "js-workers-2"}),
        JOBS,
        build_job(JOB_SET, 4, "js-workers-2"),
        4,
    ),
    "StatefulSet": (build_controlled_pod("StatefulSet", "s"), STATEFUL_SETS, obj("s", {"replicas": 5}), 5),
    "ReplicaSet": (build_controlled_pod("ReplicaSet", "r-1"), REPLICA_SETS, obj("r-1", {"replicas": 7}), 7),
    "Volcano Job by its PodGroup": (
        pod(annotations={"scheduling.k8s.io/group-name": "vj-u1"}),
        VOLCANO_JOBS,
        TASKS,
        17,
    ),
    "Job whose PodGroup does not exist": (pod(OF_GROUP), JOBS, build_job(OF_GROUP, 9), 9),
    "PyTorchJob, worker": (read_recorded("training-operator-pytorch-worker"), PYTORCH_JOBS, PYTORCH, 16),
    "PyTorchJob, master": (read_recorded("training-operator-pytorch-master"), PYTORCH_JOBS, PYTORCH, 16),
    "TFJob": (read_recorded("training-operator-tf-chief"), TF_JOBS, FLOW, 7),
    "XGBoostJob": (
        build_kubeflow_pod("xgboostjob"),
        XGBOOST_JOBS,
        obj("x", {"xgbReplicaSpecs": types(Master=1, Worker=2)}),
        3,
    ),
    "JAXJob": (build_kubeflow_pod("jaxjob"), JAX_JOBS, obj("x", {"jaxReplicaSpecs": types(Worker=2)}), 2),
    "PaddleJob": (build_kubeflow_pod("paddlejob"), PADDLE_JOBS, obj("x", {"paddleReplicaSpecs": types(Worker=2)}), 2),
    "MPIJob v1": (
        build_kubeflow_pod("mpijob"),
        MPI_JOBS_V1,
        obj("x", {"mpiReplicaSpecs": types(Launcher=1, Worker=3)}),
        4,
    ),
}


def test_a_gang_has_the_size_that_the_controller_of_its_pods_declares():
    assert {case: size(of, (kind, declared)) for case, (of, kind, declared, _) in SIZES.items()} == {
        case: expected for case, (*_, expected) in SIZES.items()
    }


@pytest.mark.parametrize("name", ["mpi-operator-launcher", "mpi-operator-worker", "mpi-operator-launcher-as-worker"])
def test_the_launcher_of_an_mpi_job_counts_in_its_gang(name):
    of = read_recorded(name)
    job = of.metadata.labels["training.kubeflow.org/job-name"]
    labels = read_recorded("mpi-operator-launcher").metadata.labels
    launcher = build_job(labels, 1, f"{job}-launcher")
    launcher["metadata"]["namespace"] = "recorded"
    mpi = obj(job, {"mpiReplicaSpecs": types(Launcher=1, Worker=8)}, namespace="recorded")
    assert size(of, (MPI_JOBS, mpi), (JOBS, launcher)) == 9


@pytest.mark.parametrize("name", ["lws-leader", "lws-worker"])
def test_the_group_size_of_a_leader_worker_set_is_read_from_its_pods(name):
    of = read_recorded(name)
    assert size(of) == int(of.metadata.annotations["leaderworkerset.sigs.k8s.io/size"]) > 1


JOB_SETS = {
    "leader and workers": ({"leader": 1, "workers": 7}, 8),
    "prefill and decode": ({"prefill": 4, "decode": 4}, 8),
    "three": ({"a": 2, "b": 3, "c": 4}, 9),
    "more than a cluster holds": ({"a": 2**31 - 1, "b": 2**31 - 1}, declared_sizes.MAX_SIZE),
}


@pytest.mark.parametrize("case", JOB_SETS)
def test_the_sizes_of_the_jobs_of_a_job_set_add_up_in_any_order(case):
    parts, expected = JOB_SETS[case]
    labels = {part: JOB_SET | {"jobset.sigs.k8s.io/replicatedjob-name": part} for part in parts}
    jobs = [(JOBS, build_job(labels[part], count, f"js-{part}-2")) for part, count in parts.items()]
    for part in parts:
        of = pod(labels[part] | {"batch.kubernetes.io/job-name": f"js-{part}-2"})
        assert size(of, *jobs) == size(of, *reversed(jobs), *jobs) == expected


def test_the_size_of_a_pod_group_takes_precedence_over_that_of_the_owner():
    owner = JOBS, build_job(OF_GROUP, 9)
    assert size(pod(OF_GROUP), owner, (PLUGINS_POD_GROUPS, group(4))) == 4
    assert size(pod(OF_GROUP), owner, (PLUGINS_POD_GROUPS, group(0))) == 9


def test_an_excessive_gang_size_is_capped():
    assert size(OF_JOB, (JOBS, obj("j", {"parallelism": 2**31 - 1}))) == declared_sizes.MAX_SIZE
    forged = pod(read_recorded("lws-leader").metadata.labels, {"leaderworkerset.sigs.k8s.io/size": "9" * 100_000})
    assert size(forged) == declared_sizes.MAX_SIZE


def test_a_label_that_is_not_text_does_not_affect_other_gangs():
    template = {"metadata": {"labels": {"a": 1, "b": None}, "annotations": ["x"]}}
    assert size(OF_JOB, (JOBS, obj("j", {"parallelism": 8, "template": template}))) == 8


def test_gang_sizes_are_read_from_every_watched_kind():
    watched = {name: (watch.name, watch.path, watch.view) for name, watch in resources.GANG_SIZES.items()}
    assert watched == {kind.name: (kind.name, kind.path, kind.view) for kind in membership.SIZE_KINDS}
    assert len(watched) == len(membership.SIZE_KINDS)


NAMES = st.sampled_from(["a", "b", "c"])
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), NAMES, st.integers(0, 4)),
        st.tuples(st.just("drop"), NAMES, st.just(0)),
        st.tuples(st.just("list"), st.dictionaries(NAMES, st.integers(0, 4)), st.just(0)),
    ),
    max_size=20,
)


GROUPS = (VOLCANO_POD_GROUPS, PLUGINS_POD_GROUPS)  # in the documented order


@given(st.lists(st.tuples(st.sampled_from(GROUPS), EVENTS)))
def test_the_first_source_with_a_size_counts_in_any_order_of_events(streams):
    table, held = declared_sizes.DeclaredSizes(lambda: None), {}
    for kind, events in streams:
        mine = held.setdefault(kind.name, {})
        for verb, what, number in events:
            if verb == "put":
                table.upsert(kind, group(number, what))
                mine[what] = number
            elif verb == "drop":
                table.remove(kind, group(0, what))
                mine.pop(what, None)
            else:
                table.replace(kind, [group(size_given, name) for name, size_given in what.items()])
                mine.clear()
                mine.update(what)
    for name in "abc":
        sizes = [held.get(kind.name, {}).get(name, 0) for kind in GROUPS]
        assert table.get_declared(membership.GangKey(f"ns/{name}")) == next(
            (declared for declared in sizes if declared), 0
        )
