"""Kueue's Workloads, and the pods that they describe."""

from collections.abc import Iterator

import msgspec

from railwright.fabric import views
from railwright.fabric.workloads import frameworks, registry

GROUP = "kueue.x-k8s.io"
VERSION = f"{GROUP}/v1beta2"  # from Kueue 0.15 on
_FINISHED = "Finished"  # condition of a Workload
_MAX_POD_SETS = 18  # of a Workload (apis/kueue/v1beta2/workload_types.go)


class PodSet(views.View, frozen=True):
    """Equal pods of a Workload. `name` is that of the replicated job or replica type, in lower case."""

    name: str = ""
    template: views.Pod = views.Pod()


class WorkloadSpec(views.View, frozen=True):
    """spec of a Workload."""

    pod_sets: list[PodSet] | None = None


class WorkloadStatus(views.View, frozen=True):
    """status of a Workload."""

    conditions: list[views.PodCondition] | None = None


class Workload(views.View, frozen=True):
    """The request of a job for quota. Kueue writes it when the job is created, long before its pods."""

    metadata: views.ObjectMeta = views.ObjectMeta()
    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus = WorkloadStatus()


def list_pods(workload: Workload) -> Iterator[views.Pod]:
    """Yield a pod for each pod set with claims, as admission of the job's template read it, in the Workload's name.

    A finished Workload has none.
    """
    if any(
        condition.type == _FINISHED and condition.status == "True" for condition in workload.status.conditions or ()
    ):
        return
    for pod_set in (workload.spec.pod_sets or ())[:_MAX_POD_SETS]:
        if pod_set.template.spec.resource_claims:
            yield _build_pod(workload, pod_set)


def _build_pod(workload: Workload, pod_set: PodSet) -> views.Pod:
    template, owner = pod_set.template.metadata, workload.metadata
    metadata = msgspec.structs.replace(
        template,
        name=owner.name,
        namespace=owner.namespace,
        uid=owner.uid,
        labels_or_none={**template.labels, **_build_labels(owner.controller, pod_set.name)},
    )
    return views.Pod(api_version=VERSION, kind="Workload", metadata=metadata, spec=pod_set.template.spec)


def _build_labels(owner: views.OwnerReference | None, part: str) -> frameworks.Labels:
    """Return the labels that the controller of a job adds to the pods of one of its templates."""
    group, _, version = (owner.api_version if owner else "").rpartition("/")
    kind = registry.find_injected(group, version, owner.kind) if owner else None
    if owner is None or kind is None:
        return {}
    spec = kind.spec_view() if kind.spec_view is not None else None
    context = frameworks.TemplateContext(owner.name, part, 0, spec)
    return kind.templates[-1].build_metadata(context).labels
