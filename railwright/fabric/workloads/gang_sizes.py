"""The kinds of objects that declare gang sizes, from all frameworks, and how an owner's size is read.

A pod template is read like a pod that its controller creates, so that a size has the key that `membership.find_gang`
returns for that pod.
"""

from collections.abc import Callable, Sequence
from typing import Any

from railwright.fabric import views
from railwright.fabric.workloads import kinds, membership, objects, registry


def _build_size_reader(kind: kinds.WorkloadKind, rule: kinds.SizeRule) -> Callable[[Any], kinds.SizeReport]:
    def read_sizes(owner: Any) -> kinds.SizeReport:
        sizes: dict[kinds.GangKey, int] = {}
        # Marks are alternatives, because releases of a controller write different labels: each has the sum of all
        # replicas. If two of them lead to one gang, the larger sum counts, not both.
        for marks in rule.list_marks(owner.metadata):
            total: dict[kinds.GangKey, int] = {}
            for replicas in rule.list_replicas(owner):
                key = _find_gang(kind.name, owner.metadata, replicas.template, marks)
                total[key] = total.get(key, 0) + (1 if replicas.replicas is None else replicas.replicas)
            sizes = {key: max(total.get(key, 0), sizes.get(key, 0)) for key in {**sizes, **total}}
        return sizes

    return read_sizes


def _find_gang(
    kind: str, owner: views.Identity, template: objects.Template | None, marks: kinds.PodMarks
) -> kinds.GangKey:
    """Return the gang of the pods that a controller creates from a template."""
    template = template or objects.Template()
    labels, annotations = template.list_tags()
    spec = template.spec or objects.TemplateSpec()
    controller = views.OwnerReference(kind=kind, name=owner.name, uid=owner.uid, controller=True)
    metadata = views.ObjectMeta(
        namespace=owner.namespace,
        labels_or_none={**labels, **marks.labels},
        annotations_or_none={**annotations, **marks.annotations},
        owner_references_or_none=[controller],
    )
    pod_spec = views.PodSpec(scheduling_group=spec.scheduling_group, workload_ref=spec.workload_ref)
    return membership.find_gang(views.Pod(metadata=metadata, spec=pod_spec))


def _build_size_kind(kind: kinds.WorkloadKind, rule: kinds.SizeRule) -> kinds.SizeKind:
    return kinds.SizeKind(
        rule.watch or f"{kind.plural}.{kind.group}",
        kinds.SizeSource.OWNER,
        _build_size_reader(kind, rule),
        path=f"/apis/{kind.group}/{kind.versions[-1]}/{kind.plural}",
        snapshot_kind=kind.display_name,
        view=rule.view,
        optional=rule.optional,
    )


PODS = kinds.SizeKind("pods", kinds.SizeSource.POD, lambda _: {})  # the cluster state reads sizes from pods itself
SIZE_KINDS: Sequence[kinds.SizeKind] = (
    *(kind for framework in registry.FRAMEWORKS for kind in framework.pod_groups),
    *(_build_size_kind(kind, kind.size) for kind in registry.KINDS if kind.size is not None),
)
_ANNOTATIONS = tuple(framework.size_annotation for framework in registry.FRAMEWORKS if framework.size_annotation)


def get_kind(name: str) -> kinds.SizeKind:
    """Return the kind with this name of its watch. Raises KeyError."""
    return _BY_NAME[name]


_BY_NAME = {kind.name: kind for kind in SIZE_KINDS}


def read_annotation(pod: views.Pod) -> int:
    """Return the gang size in an annotation of the pod, or 0."""
    for annotation in _ANNOTATIONS:
        text = pod.metadata.annotations.get(annotation, "")
        if text.isascii() and text.isdigit():
            return int(text[:6])  # truncated: parsing a long number costs time
    return 0
