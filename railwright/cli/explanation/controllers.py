"""Which pods a controller makes of a template: how many, how they are called, and what else it puts on them.

Owns that table, for the workloads of `railwright.fabric.injection.kinds` and some more. Where templates are, and the
labels and variables that tell a role, stand there and only there. Refuses to know fabrics.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from railwright.cli.explanation import manifests
from railwright.fabric import names
from railwright.fabric.injection import kinds, templates


class Origin(msgspec.Struct, frozen=True):
    """A template, and all that stands on the way to it: the object first, the template last."""

    kind: kinds.Kind
    template: templates.Template
    way: Sequence[Any]

    @property
    def name(self) -> str:
        """The object's."""
        return str(manifests.mapping(self.way[0], "metadata").get("name", ""))

    @property
    def holder(self) -> manifests.Tree:
        """What the template is in: a spec, a task, a replica, a group."""
        found: manifests.Tree = self.way[-2]
        return found


class Made(msgspec.Struct, frozen=True):
    """One sort of pod made of a template."""

    part: str = ""  # which of the object's templates; "" where it has one
    pods: Any = 1  # as written; no number where it is decided elsewhere
    name: str = ""  # after the object's own; ends with "-" where the rest is generated
    labels: Mapping[str, str] = {}  # beside those of `kinds`
    annotations: Mapping[str, str] = {}
    keys: str = ""  # the volume of its ssh keys, for ranks that are started by ssh


Makes = Callable[[Origin], Iterator[Made]]


def find(group: str, version: str, name: str) -> tuple[kinds.Kind, Makes] | None:
    """The row of a kind and what is made of its templates; a version that nobody knows is read as the latest row."""
    rows = [kind for kind in _ALL if (kind.group, kind.name) == (group, name)]
    kind = next((each for each in rows if version in each.versions), rows[-1] if rows else None)
    return None if kind is None else (kind, _MAKES.get((group, name), _plain))


def known() -> list[str]:
    """The kinds, for messages."""
    return list(dict.fromkeys(kind.name for kind in _ALL))


def reached(kind: kinds.Kind) -> bool:
    """True where a label on the object reaches its pods: copied by us, or by KubeRay into the RayCluster."""
    return kind in kinds.KINDS or kind.group == _RAY.group


# --- Kubernetes' own --------------------------------------------------------------------------------------


def _plain(origin: Origin) -> Iterator[Made]:
    """Of a kind without a row of its own."""
    part = origin.template.spot.name
    yield Made(part, origin.holder.get("replicas", 1), f"-{part}-" if part else "-")


def _on_every_node(_: Origin) -> Iterator[Made]:
    yield Made(pods=None, name="-")


def _stateful(origin: Origin) -> Iterator[Made]:
    labels = {"apps.kubernetes.io/pod-index": "0", "statefulset.kubernetes.io/pod-name": f"{origin.name}-0"}
    yield Made(pods=origin.holder.get("replicas", 1), name="-0", labels=labels)


def _job(origin: Origin) -> Iterator[Made]:
    yield _of_job(origin.holder, origin.name)


def _of_job(spec: manifests.Tree, name: str) -> Made:
    indexed = spec.get("completionMode") == "Indexed"
    index = {names.BATCH_INDEX: "0"} if indexed else {}
    return Made(
        pods=spec.get("parallelism", 1),
        name="-0-" if indexed else "-",
        labels={names.BATCH_JOB: name, "job-name": name, **index},
        annotations=index,
    )


# --- Volcano and Kubeflow ---------------------------------------------------------------------------------


def _volcano(origin: Origin) -> Iterator[Made]:
    task = origin.template.added.labels[names.VOLCANO_TASK]
    plugins = manifests.mapping(origin.way[0], "spec", "plugins")
    yield Made(
        part=f"task {task}",
        pods=origin.holder.get("replicas", 1),
        name=f"-{task}-0",
        labels={names.VOLCANO_TASK_INDEX: "0"},
        annotations={names.VOLCANO_GROUP: origin.name},  # with the job's uid behind it, which nobody knows yet
        keys=f"{origin.name}-ssh" if plugins.keys() & {"ssh", "mpi"} else "",  # mpi brings ssh with it
    )


def _kubeflow(origin: Origin) -> Iterator[Made]:
    by_ssh = "v2beta1" in origin.kind.versions  # of the mpi-operator; training-operator's v1 uses kubectl exec
    role = origin.template.spot.name.lower()
    operator = "mpi-operator" if by_ssh else f"{origin.kind.name.lower()}-controller"
    index = {} if role == "launcher" else {names.KUBEFLOW_REPLICA_INDEX: "0"}
    master = {names.KUBEFLOW_ROLE: "master"} if role in {"master", "chief"} else {}
    yield Made(
        part=f"replica {origin.template.spot.name}",
        pods=origin.holder.get("replicas", 1),
        name="-launcher-" if by_ssh and role == "launcher" else f"-{role}-0",
        labels={names.KUBEFLOW_OPERATOR: operator, **index, **master},
        keys="ssh-auth" if by_ssh else "",
    )


# --- JobSet, LeaderWorkerSet, Ray -------------------------------------------------------------------------


def _job_set(origin: Origin) -> Iterator[Made]:
    part, job = origin.template.spot.name, origin.way[3]
    one = _of_job(origin.holder, f"{origin.name}-{part}-0")
    times = job.get("replicas", 1)
    yield msgspec.structs.replace(
        one,
        part=f"replicated job {part}",
        pods=times * one.pods if isinstance(times, int) and isinstance(one.pods, int) else None,
        name=f"-{part}-0{one.name}",
        labels={**one.labels, names.JOBSET_JOB_INDEX: "0"},
    )


def _leader_worker_set(origin: Origin) -> Iterator[Made]:
    """A set without a template for leaders makes them of that for workers."""
    groups = manifests.mapping(origin.way[0], "spec").get("replicas", 1)
    size, leads = origin.holder.get("size", 1), names.LEADER_WORKER_INDEX in origin.template.added.labels
    shared = {names.LEADER_WORKER_GROUP_INDEX: "0"}
    if leads or "leaderTemplate" not in origin.holder:
        yield Made("leader", groups, "-0", {**shared, names.LEADER_WORKER_INDEX: "0"})
    workers = groups * (size - 1) if isinstance(groups, int) and isinstance(size, int) else None
    if not leads and workers != 0:
        yield Made("worker", workers, "-0-1", {**shared, names.LEADER_WORKER_INDEX: "1"})


def _ray(origin: Origin) -> Iterator[Made]:
    if origin.template.added.labels[names.RAY_NODE_TYPE] == "head":
        yield Made("head", name="-head-", labels={"ray.io/group": "headgroup"})
        return
    part = origin.template.spot.name
    replicas = origin.holder.get("replicas", 1)
    yield Made(f"worker group {part}", replicas, f"-{part}-worker-", {"ray.io/group": part})


# --- the table --------------------------------------------------------------------------------------------


def _like(group: str, name: str, row: kinds.Kind, *steps: str, instead: int = 0) -> kinds.Kind:
    """A kind that has its templates where another has them, but for so many of the first steps."""
    sites = [msgspec.structs.replace(site, path=(*steps, *site.path[instead:])) for site in row.sites]
    return kinds.Kind(group, ("v1",), name, "", tuple(sites))


_ROWS = {(kind.group, kind.name): kind for kind in kinds.KINDS}
_DEPLOYMENT, _JOB, _RAY = _ROWS["apps", "Deployment"], _ROWS["batch", "Job"], _ROWS["ray.io", "RayCluster"]
# Their pods are equipped, their templates are not. TrainJob is none: its pods come from a runtime, not from the file.
_MORE = (
    _like("apps", "ReplicaSet", _DEPLOYMENT),
    _like("apps", "DaemonSet", _DEPLOYMENT),
    _like("", "ReplicationController", _DEPLOYMENT),
    _like("batch", "CronJob", _JOB, "spec", "jobTemplate"),
    _like("ray.io", "RayJob", _RAY, "spec", "rayClusterSpec", instead=1),
    _like("ray.io", "RayService", _RAY, "spec", "rayClusterConfig", instead=1),
)
_ALL = (*kinds.KINDS, *_MORE)
_MAKES: Mapping[tuple[str, str], Makes] = {
    ("apps", "StatefulSet"): _stateful,
    ("apps", "DaemonSet"): _on_every_node,
    ("batch", "Job"): _job,
    ("batch", "CronJob"): _job,
    ("batch.volcano.sh", "Job"): _volcano,
    **{(kind.group, kind.name): _kubeflow for kind in _ALL if kind.group == "kubeflow.org"},
    ("jobset.x-k8s.io", "JobSet"): _job_set,
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): _leader_worker_set,
    **{(kind.group, kind.name): _ray for kind in _ALL if kind.group == "ray.io"},
}
