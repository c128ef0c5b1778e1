"""The table of object kinds that declare gang sizes, with a function for each that reads the sizes.

A pod template is read like a pod that its controller creates, so that a size has the key that `workload.gang_of`
returns for that pod.
"""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from railwright.fabric import names, views, workload, workload_views
from railwright.fabric.placement import sizes


def _min_member(group: views.PodGroup) -> sizes.Told:
    return {workload.GangKey(sizes.holder_of(group.metadata)): group.spec.min_member}


def _min_count(group: views.PodGroup) -> sizes.Told:
    return {workload.GangKey(sizes.holder_of(group.metadata)): _gang(group.spec.scheduling_policy)}


def _named_groups(obj: workload_views.Workload) -> sizes.Told:
    """Return the sizes of the pod groups in a Workload of Kubernetes 1.35."""
    base = f"{obj.metadata.namespace}/workload/{obj.metadata.name}"
    return {workload.GangKey(f"{base}/{group.name}"): _gang(group.policy) for group in obj.spec.pod_groups or ()}


def _gang(policy: views.SchedulingPolicy | None) -> int:
    return policy.gang.min_count if policy and policy.gang else 0


# --- owners ---------------------------------------------------------------------------------------------


class _Made(msgspec.Struct, frozen=True):
    """The labels and annotations that a controller writes to its pods and that identify their gang."""

    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}


_Counts = Callable[[workload_views.Workload], Sequence[workload_views.Replicas]]
_Makes = Callable[[workload_views.Identity], Sequence[_Made]]
"""The possible markings of an owner's pods. Releases of a controller differ, so a size is stored for each."""


def _owner(kind: str, counts: _Counts, makes: _Makes) -> Callable[[workload_views.Workload], sizes.Told]:
    def told(obj: workload_views.Workload) -> sizes.Told:
        found: dict[workload.GangKey, int] = {}
        for made in makes(obj.metadata):
            total: dict[workload.GangKey, int] = {}
            for each in counts(obj):
                key = _key(kind, obj.metadata, each.template, made)
                total[key] = total.get(key, 0) + (1 if each.replicas is None else each.replicas)
            found = {key: max(total.get(key, 0), found.get(key, 0)) for key in {**found, **total}}
        return found

    return told


def _key(
    kind: str, owner: workload_views.Identity, template: workload_views.Template | None, made: _Made
) -> workload.GangKey:
    """Return the gang of the pods that a controller creates from a template."""
    template = template or workload_views.Template()
    labels, annotations = template.tags()
    spec = template.spec or workload_views.TemplateSpec()
    controller = views.OwnerReference(kind=kind, name=owner.name, uid=owner.uid, controller=True)
    metadata = views.ObjectMeta(
        namespace=owner.namespace,
        labels_or_none={**labels, **made.labels},
        annotations_or_none={**annotations, **made.annotations},
        owner_references_or_none=[controller],
    )
    pod_spec = views.PodSpec(scheduling_group=spec.scheduling_group, workload_ref=spec.workload_ref)
    return workload.gang_of(views.Pod(metadata=metadata, spec=pod_spec))


def _parallel(obj: workload_views.Workload) -> Sequence[workload_views.Replicas]:
    """Return the pods of a batch Job: `parallelism`, or fewer if fewer completions remain (job controller)."""
    at_once = 1 if obj.spec.parallelism is None else obj.spec.parallelism
    if obj.spec.completions is not None:
        done = (obj.status and obj.status.succeeded) or 0
        at_once = min(at_once, max(0, obj.spec.completions - done))
    return (workload_views.Replicas(replicas=at_once, template=obj.spec.template),)


def _replicated(obj: workload_views.Workload) -> Sequence[workload_views.Replicas]:
    return (workload_views.Replicas(replicas=obj.spec.replicas, template=obj.spec.template),)


def _tasks(obj: workload_views.Workload) -> Sequence[workload_views.Replicas]:
    return obj.spec.tasks or ()


def _replica_types(obj: workload_views.Workload) -> Sequence[workload_views.Replicas]:
    spec = obj.spec
    written = (
        spec.pytorch_replica_specs,
        spec.tf_replica_specs,
        spec.xgb_replica_specs,
        spec.mpi_replica_specs,
        spec.paddle_replica_specs,
        spec.jax_replica_specs,
    )
    return [each for types in written for each in (types or {}).values() if each is not None]


def _unmarked(_: workload_views.Identity) -> Sequence[_Made]:
    return (_Made(),)


def _batch(owner: workload_views.Identity) -> Sequence[_Made]:
    return (_Made({names.BATCH_JOB: owner.name}), _Made())  # without the label: Kubernetes before 1.27


def _volcano(owner: workload_views.Identity) -> Sequence[_Made]:
    """Return the markings of Volcano Jobs: the PodGroup is named after the Job (pkg/controllers/job)."""
    group = _Made(annotations={names.VOLCANO_GROUP: f"{owner.name}-{owner.uid}"})
    return (group, _Made({names.VOLCANO_JOB: owner.name}))


def _kubeflow(*operators: str) -> _Makes:
    def makes(owner: workload_views.Identity) -> Sequence[_Made]:
        job = {names.KUBEFLOW_JOB: owner.name}
        return (*(_Made({**job, names.KUBEFLOW_OPERATOR: each}) for each in operators), _Made(job))

    return makes


def _mpi(owner: workload_views.Identity) -> Sequence[_Made]:
    return (*_kubeflow("mpi-operator", "mpijob-controller")(owner), _Made({names.MPI_OPERATOR_JOB: owner.name}))


def _training_job(kind: str) -> sizes.Kind:
    """Return a training-operator v1 kind; its pods are labelled with the controller's name (pkg/controller.v1)."""
    told = _owner(kind, _replica_types, _kubeflow(f"{kind.lower()}-controller"))
    return sizes.Kind(f"{kind.lower()}s.kubeflow.org", sizes.Source.OWNER, told)


VOLCANO_POD_GROUPS = sizes.Kind("podgroups.scheduling.volcano.sh", sizes.Source.VOLCANO, _min_member)
PLUGINS_POD_GROUPS = sizes.Kind("podgroups.scheduling.x-k8s.io", sizes.Source.PLUGINS, _min_member)
IN_TREE_POD_GROUPS = sizes.Kind("podgroups.scheduling.k8s.io", sizes.Source.IN_TREE, _min_count)  # Kubernetes 1.37
IN_TREE_POD_GROUPS_ALPHA = sizes.Kind("podgroups.v1alpha2.scheduling.k8s.io", sizes.Source.IN_TREE, _min_count)  # 1.36
IN_TREE_WORKLOADS = sizes.Kind("workloads.scheduling.k8s.io", sizes.Source.IN_TREE, _named_groups)  # 1.35
JOBS = sizes.Kind("jobs.batch", sizes.Source.OWNER, _owner("Job", _parallel, _batch))
STATEFUL_SETS = sizes.Kind("statefulsets.apps", sizes.Source.OWNER, _owner("StatefulSet", _replicated, _unmarked))
REPLICA_SETS = sizes.Kind("replicasets.apps", sizes.Source.OWNER, _owner("ReplicaSet", _replicated, _unmarked))
VOLCANO_JOBS = sizes.Kind("jobs.batch.volcano.sh", sizes.Source.OWNER, _owner("Job", _tasks, _volcano))
PYTORCH_JOBS = _training_job("PyTorchJob")
TF_JOBS = _training_job("TFJob")
XGBOOST_JOBS = _training_job("XGBoostJob")
PADDLE_JOBS = _training_job("PaddleJob")
JAX_JOBS = _training_job("JAXJob")
MPI_JOBS = sizes.Kind("mpijobs.kubeflow.org", sizes.Source.OWNER, _owner("MPIJob", _replica_types, _mpi))
MPI_JOBS_V1 = sizes.Kind("mpijobs.v1.kubeflow.org", sizes.Source.OWNER, _owner("MPIJob", _replica_types, _mpi))
