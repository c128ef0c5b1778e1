"""Kubernetes' apps API and the ReplicationController, which know no gangs: the owner is the gang."""

from collections.abc import Iterator, Sequence
from typing import Any

from railwright.fabric import views
from railwright.fabric.workloads import frameworks, kinds, objects

_POD_INDEX = "apps.kubernetes.io/pod-index"  # label
_POD_NAME = "statefulset.kubernetes.io/pod-name"  # label


class ReplicatedSpec(views.View, frozen=True):
    """The fields of a StatefulSet or ReplicaSet that state its size."""

    replicas: int | None = None
    template: objects.Template | None = None


class ClaimingSpec(views.View, frozen=True):
    """The field of a StatefulSet with the claims whose volumes its controller adds to the pods."""

    volume_claim_templates: Any = None


class Replicated(objects.Workload, frozen=True):
    """A StatefulSet or ReplicaSet, with the fields that state its size."""

    spec: ReplicatedSpec = ReplicatedSpec()


def _list_replicas(workload: Replicated) -> Sequence[objects.Replicas]:
    return (objects.Replicas(replicas=workload.spec.replicas, template=workload.spec.template),)


def _build_stateful_metadata(context: kinds.TemplateContext) -> kinds.ControllerMetadata:
    """Build the volumes of claims, which replace those of the template: pkg/controller/statefulset, updateStorage."""
    return kinds.ControllerMetadata(volumes=kinds.list_claim_volumes(context.spec.volume_claim_templates))


def _create_stateful_pods(origin: kinds.TemplateOrigin) -> Iterator[kinds.CreatedPods]:
    labels = {_POD_INDEX: "0", _POD_NAME: f"{origin.context.workload}-0"}
    yield kinds.CreatedPods(count=origin.parent.get("replicas", 1), name="-0", labels=labels)


def _create_daemon_pods(_: kinds.TemplateOrigin) -> Iterator[kinds.CreatedPods]:
    yield kinds.CreatedPods(count=None, name="-")


_TEMPLATES = kinds.locate(kinds.build_no_metadata)
_SIZE = kinds.SizeRule(Replicated, _list_replicas, optional=False)

FRAMEWORK = frameworks.Framework(
    workload_kinds=(
        kinds.WorkloadKind("apps", ("v1",), "Deployment", "deployments", _TEMPLATES),
        kinds.WorkloadKind(
            "apps",
            ("v1",),
            "StatefulSet",
            "statefulsets",
            kinds.locate(_build_stateful_metadata),
            spec_view=ClaimingSpec,
            create_pods=_create_stateful_pods,
            size=_SIZE,
        ),
        kinds.WorkloadKind("apps", ("v1",), "ReplicaSet", "replicasets", _TEMPLATES, is_injected=False, size=_SIZE),
        kinds.WorkloadKind(
            "apps",
            ("v1",),
            "DaemonSet",
            "daemonsets",
            _TEMPLATES,
            is_injected=False,
            create_pods=_create_daemon_pods,
            count_pods=lambda _, __: None,  # as many as nodes
        ),
        kinds.WorkloadKind(
            "", ("v1",), "ReplicationController", "replicationcontrollers", _TEMPLATES, is_injected=False
        ),
    ),
    index_keys=(_POD_INDEX, _POD_NAME),
    replica_fields=("replicas",),
)
