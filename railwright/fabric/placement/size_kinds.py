"""The kinds of object that tell how many pods a gang has, one row each, and what they tell.

Owns the table, and what each controller writes onto its pods: a template is read as the pod that is made of it, so
that a size is filed under the very key `workload.gang_of` gives that pod. Knows no pods and no other object's word.
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
    """A Workload of Kubernetes 1.35, whose groups have no objects of their own."""
    base = f"{obj.metadata.namespace}/workload/{obj.metadata.name}"
    return {workload.GangKey(f"{base}/{group.name}"): _gang(group.policy) for group in obj.spec.pod_groups or ()}


def _gang(policy: views.SchedulingPolicy | None) -> int:
    return policy.gang.min_count if policy and policy.gang else 0


# --- owners ---------------------------------------------------------------------------------------------


class _Made(msgspec.Struct, frozen=True):
    """What a controller writes onto the pods it makes, as far as it names their gang."""

    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}


_Counts = Callable[[workload_views.Workload], Sequence[workload_views.Replicas]]
_Makes = Callable[[workload_views.Identity], Sequence[_Made]]
"""The ways an owner's pods may be marked: releases of a controller differ, and a gang is filed under each."""


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
    """The gang of a pod that a controller makes of a template."""
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
    """A batch Job runs `parallelism` pods at once, fewer where fewer completions are left (job controller)."""
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
    """Volcano names the PodGroup after its Job (pkg/controllers/job: GeneratePodgroupName)."""
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
    """A job of the training-operator v1, whose pods carry its controller's name (pkg/controller.v1)."""
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
