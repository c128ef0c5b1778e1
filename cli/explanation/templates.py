"""Workload -> its pods as the controller would create them: the template, its name, and the labels that tell a role.

Owns the table of kinds and what each controller adds that admission looks at. Pure. Refuses to know fabrics.
"""

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from cli.explanation import manifests
from fabric import names

Tree = manifests.Tree
DEFAULT_NAMESPACE = "default"


class Template(msgspec.Struct, frozen=True):
    """One sort of pod an object makes. `part` is which of its templates, "" where it has one."""

    owner: str
    part: str
    pods: int | None  # None where the number is decided elsewhere
    namespace: str
    pod: Tree


class _Found(msgspec.Struct, frozen=True):
    """A template as a controller finds it, and what it adds."""

    template: Any
    part: str = ""
    pods: Any = 1
    name: str = ""  # after the object's own; ends with "-" where the rest is generated
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    change: Callable[[Tree], None] | None = None  # what the controller does to the pod beyond that


def of(tree: Tree, namespace: str) -> list[Template] | None:
    """The pods of an object, those of `namespace` where it names none; None where it is no kind that makes pods."""
    metadata = manifests.mapping(tree, "metadata")
    where = str(metadata.get("namespace") or namespace)
    if (_group(tree), tree["kind"]) == ("", "Pod"):
        pod = {**tree, "metadata": {**metadata, "namespace": where}}
        return [Template(owner=manifests.title(tree, where), part="", pods=1, namespace=where, pod=pod)]
    finder = _KINDS.get((_group(tree), tree["kind"]))
    if finder is None:
        return None
    return [_template(tree, where, found) for found in finder(tree) if isinstance(found.template, dict)]


def kinds() -> list[str]:
    """The kinds that are known, for messages."""
    return ["Pod", *dict.fromkeys(kind for _, kind in _KINDS)]


def _template(tree: Tree, namespace: str, found: _Found) -> Template:
    own = manifests.mapping(found.template, "metadata")
    labels = {**manifests.mapping(own, "labels"), **found.labels}
    said = manifests.mapping(tree, "metadata", "labels").get(names.FABRIC)
    if said is not None:
        labels.setdefault(names.FABRIC, said)  # the label on the object counts for all its templates
    name = f"{_name(tree)}{found.name}"
    metadata: Tree = {"generateName" if name.endswith("-") else "name": name, "namespace": namespace}
    metadata |= {"labels": labels} if labels else {}
    annotations = {**manifests.mapping(own, "annotations"), **found.annotations}
    metadata |= {"annotations": annotations} if annotations else {}
    spec = copy.deepcopy(manifests.mapping(found.template, "spec"))
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    if found.change is not None:
        found.change(pod)
    count = found.pods if isinstance(found.pods, int) else None
    return Template(owner=manifests.title(tree, namespace), part=found.part, pods=count, namespace=namespace, pod=pod)


def _name(tree: Tree) -> str:
    return str(manifests.mapping(tree, "metadata").get("name", ""))


def _group(tree: Tree) -> str:
    return str(tree.get("apiVersion", "")).rpartition("/")[0]


# --- Kubernetes' own --------------------------------------------------------------------------------------


def _plain(tree: Tree) -> Iterator[_Found]:
    spec = manifests.mapping(tree, "spec")
    yield _Found(spec.get("template"), pods=spec.get("replicas", 1), name="-")


def _on_every_node(tree: Tree) -> Iterator[_Found]:
    yield _Found(manifests.mapping(tree, "spec").get("template"), pods=None, name="-")


def _stateful(tree: Tree) -> Iterator[_Found]:
    spec = manifests.mapping(tree, "spec")
    labels = {"apps.kubernetes.io/pod-index": "0", "statefulset.kubernetes.io/pod-name": f"{_name(tree)}-0"}
    yield _Found(spec.get("template"), pods=spec.get("replicas", 1), name="-0", labels=labels)


def _job(tree: Tree) -> Iterator[_Found]:
    yield _of_job(manifests.mapping(tree, "spec"), _name(tree))


def _cron_job(tree: Tree) -> Iterator[_Found]:
    yield _of_job(manifests.mapping(tree, "spec", "jobTemplate", "spec"), _name(tree))


def _of_job(spec: Tree, name: str) -> _Found:
    indexed = spec.get("completionMode") == "Indexed"
    labels = {names.BATCH_JOB: name, "job-name": name}
    return _Found(
        spec.get("template"),
        pods=spec.get("parallelism", 1),
        name="-0-" if indexed else "-",
        labels=labels | ({names.BATCH_INDEX: "0"} if indexed else {}),
        annotations={names.BATCH_INDEX: "0"} if indexed else {},
    )


# --- Volcano ----------------------------------------------------------------------------------------------


def _volcano(tree: Tree) -> Iterator[_Found]:
    job = _name(tree)
    plugins = manifests.mapping(tree, "spec", "plugins")
    for number, task in enumerate(manifests.sequence(tree, "spec", "tasks")):
        if not isinstance(task, dict):
            continue
        part = str(task.get("name") or f"default{number}")  # volcano pkg/webhooks/admission/jobs/mutate
        yield _Found(
            task.get("template"),
            part=f"task {part}",
            pods=task.get("replicas", 1),
            name=f"-{part}-0",
            labels={names.VOLCANO_JOB: job, names.VOLCANO_TASK: part, names.VOLCANO_TASK_INDEX: "0"},
            annotations={names.VOLCANO_GROUP: job},  # with the job's uid behind it, which nobody knows yet
            change=_volcano_plugins(plugins, job, part),
        )


def _volcano_plugins(plugins: Tree, job: str, part: str) -> Callable[[Tree], None]:
    """What its job plugins do before admission: mpi brings ssh with it and names the hosts to the master."""
    arguments = [str(each) for each in manifests.sequence(plugins, "mpi")]
    master = next((each.partition("=")[2] for each in arguments if each.startswith("--master=")), "master")

    def change(pod: Tree) -> None:
        if plugins.keys() & {"ssh", "mpi"}:
            _mount_keys(pod, f"{job}-ssh", f"{job}-ssh")
        if "mpi" in plugins and part == master:
            for container in _containers(pod):
                container["env"] = [*manifests.sequence(container, "env"), {"name": "MPI_HOST", "value": ""}]

    return change


# --- Kubeflow ---------------------------------------------------------------------------------------------


def _kubeflow(tree: Tree) -> Iterator[_Found]:
    job, kind = _name(tree), tree["kind"]
    by_ssh = kind == "MPIJob"
    operator = "mpi-operator" if str(tree.get("apiVersion")).endswith("/v2beta1") else f"{kind.lower()}-controller"
    for written, replica in manifests.mapping(tree, "spec", _REPLICAS[kind]).items():
        if not isinstance(replica, dict):
            continue
        role = written.lower()
        labels = {names.KUBEFLOW_JOB: job, names.KUBEFLOW_REPLICA_TYPE: role, _OPERATOR: operator}
        if role in {"master", "launcher"} or by_ssh:
            labels[names.KUBEFLOW_ROLE] = role
        launcher = role == "launcher"
        yield _Found(
            replica.get("template"),
            part=f"replica {written}",
            pods=replica.get("replicas", 1),
            name="-launcher-" if launcher and operator == "mpi-operator" else f"-{role}-0",
            labels=labels | ({} if launcher else {names.KUBEFLOW_REPLICA_INDEX: "0"}),
            change=(lambda pod: _mount_keys(pod, "ssh-auth", f"{job}-ssh")) if by_ssh else None,
        )


_OPERATOR = "training.kubeflow.org/operator-name"
_REPLICAS: Mapping[str, str] = {
    "PyTorchJob": "pytorchReplicaSpecs",
    "TFJob": "tfReplicaSpecs",
    "MPIJob": "mpiReplicaSpecs",
    "XGBoostJob": "xgbReplicaSpecs",
    "PaddleJob": "paddleReplicaSpecs",
    "JAXJob": "jaxReplicaSpecs",
}


# --- JobSet, LeaderWorkerSet, Ray -------------------------------------------------------------------------


def _job_set(tree: Tree) -> Iterator[_Found]:
    for job in manifests.sequence(tree, "spec", "replicatedJobs"):
        if not isinstance(job, dict):
            continue
        part, spec = str(job.get("name", "")), manifests.mapping(job, "template", "spec")
        one = _of_job(spec, f"{_name(tree)}-{part}-0")
        labels = {names.JOBSET: _name(tree), names.JOBSET_REPLICATED_JOB: part, names.JOBSET_JOB_INDEX: "0"}
        each = one.pods if isinstance(one.pods, int) else 1
        times = job.get("replicas", 1)
        yield msgspec.structs.replace(
            one,
            part=f"replicated job {part}",
            pods=each * times if isinstance(times, int) else None,
            name=f"-{part}-0{one.name}",
            labels={**one.labels, **labels},
        )


def _leader_worker_set(tree: Tree) -> Iterator[_Found]:
    spec = manifests.mapping(tree, "spec")
    both = manifests.mapping(spec, "leaderWorkerTemplate")
    groups, size = spec.get("replicas", 1), both.get("size", 1)
    counted = isinstance(groups, int) and isinstance(size, int)
    worker = both.get("workerTemplate")
    shared = {names.LEADER_WORKER_SET: _name(tree), names.LEADER_WORKER_GROUP_INDEX: "0"}
    for part, template, pods, name, index in (
        ("leader", both.get("leaderTemplate", worker), groups, "-0", "0"),
        ("worker", worker, groups * (size - 1) if counted else None, "-0-1", "1"),
    ):
        if pods != 0:
            labels = {**shared, names.LEADER_WORKER_INDEX: index}
            yield _Found(template, part=part, pods=pods, name=name, labels=labels)


def _ray_cluster(tree: Tree) -> Iterator[_Found]:
    spec = manifests.mapping(tree, "spec")
    yield from _ray(spec)


def _ray_job(tree: Tree) -> Iterator[_Found]:
    yield from _ray(manifests.mapping(tree, "spec", "rayClusterSpec"))


def _ray_service(tree: Tree) -> Iterator[_Found]:
    yield from _ray(manifests.mapping(tree, "spec", "rayClusterConfig"))


def _ray(cluster: Tree) -> Iterator[_Found]:
    head = manifests.mapping(cluster, "headGroupSpec").get("template")
    yield _Found(head, part="head", name="-head-", labels={names.RAY_NODE_TYPE: "head", "ray.io/group": "headgroup"})
    for group in manifests.sequence(cluster, "workerGroupSpecs"):
        if isinstance(group, dict):
            part = str(group.get("groupName", ""))
            yield _Found(
                group.get("template"),
                part=f"worker group {part}",
                pods=group.get("replicas", 1),
                name=f"-{part}-worker-",
                labels={names.RAY_NODE_TYPE: "worker", "ray.io/group": part},
            )


# A kind is a row. TrainJob is none: its pods come from a runtime that is not in the file.
_KINDS: Mapping[tuple[str, str], Callable[[Tree], Iterator[_Found]]] = {
    ("apps", "Deployment"): _plain,
    ("apps", "ReplicaSet"): _plain,
    ("", "ReplicationController"): _plain,
    ("apps", "StatefulSet"): _stateful,
    ("apps", "DaemonSet"): _on_every_node,
    ("batch", "Job"): _job,
    ("batch", "CronJob"): _cron_job,
    ("batch.volcano.sh", "Job"): _volcano,
    **dict.fromkeys([("kubeflow.org", kind) for kind in _REPLICAS], _kubeflow),
    ("jobset.x-k8s.io", "JobSet"): _job_set,
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): _leader_worker_set,
    ("ray.io", "RayCluster"): _ray_cluster,
    ("ray.io", "RayJob"): _ray_job,
    ("ray.io", "RayService"): _ray_service,
}


# --- what several do --------------------------------------------------------------------------------------


def _containers(pod: Tree) -> list[Tree]:
    return [each for each in manifests.sequence(pod, "spec", "containers") if isinstance(each, dict)]


def _mount_keys(pod: Tree, volume: str, secret: str) -> None:
    """Ranks are started by ssh: its keys are a Secret in every container."""
    spec = pod["spec"]
    spec["volumes"] = [
        *manifests.sequence(spec, "volumes"),
        {"name": volume, "secret": {"secretName": secret, "defaultMode": 0o600}},
    ]
    for container in _containers(pod):
        mounts = manifests.sequence(container, "volumeMounts")
        container["volumeMounts"] = [*mounts, {"name": volume, "mountPath": names.SSH_HOME}]
