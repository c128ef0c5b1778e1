"""Finds a pod's gang, its rank, and the gang's size, from the labels of each framework (docs/interface.md 7.1).

A pod template is read like a pod that its controller creates, so that a size has the key that `find_gang` returns for
that pod. `placement.state.declared_sizes` decides between the sizes of several objects.
"""

import itertools
from collections.abc import Mapping, Sequence

import msgspec

from railwright.fabric import views
from railwright.fabric.workloads import frameworks, registry

GangKey = frameworks.GangKey
NO_GANG = GangKey("")

_NO_INDEX = 1 << 30  # pods without an index come after all others


class Rank(msgspec.Struct, gc=False, frozen=True, order=True):
    """Order of a pod in its gang: launchers and masters first, then the index, then the name."""

    role: int  # 0 for launchers, masters and leaders, 1 for all others
    index: int
    name: str
    is_labelled: bool = False  # the index is a label of the framework, so that the first pod has 0

    @property
    def is_numbered(self) -> bool:
        """True if the index is a label, or all that follows the last hyphen of the name: of web-12, not of web-x7k2."""
        last = self.name.rpartition("-")[2]
        return self.is_labelled or (last.isascii() and last.isdigit())


def find_gang(pod: views.Pod, volcano_job: str = "") -> GangKey:
    """Return the gang of a pod: the first match of docs/interface.md 7.1.

    `volcano_job` is TaskInfo.Job ("namespace/podgroup").
    """
    if volcano_job:
        return GangKey(volcano_job)
    metadata, labels, annotations = pod.metadata, pod.metadata.labels, pod.metadata.annotations
    names = [*map(annotations.get, GROUP_ANNOTATIONS), *map(labels.get, _GROUP_LABELS)]
    if group := next(filter(None, names), None):
        return GangKey(f"{metadata.namespace}/{group}")
    for row in () if labels.keys().isdisjoint(_JOB_LABELS) else _GANG_LABELS:
        if job := labels.get(row.label):
            parts = (job, *(labels.get(label) for label in row.more))
            return GangKey("/".join([metadata.namespace, row.source, *(part for part in parts if part)]))
    # The Job controller writes a PodGroup for each Job, without the number of its pods, which the Job states.
    if (in_tree := pod.spec.scheduling_group) and in_tree.pod_group_name:
        return GangKey(f"{metadata.namespace}/{in_tree.pod_group_name}")
    owner = metadata.controller
    return GangKey(f"{metadata.namespace}/{owner.kind}/{owner.name}/{owner.uid}") if owner else NO_GANG


def find_gang_name(pod: views.Pod, gang: GangKey) -> str:
    """Return the name of a pod's gang for the user: the name of its job, and the gang's number in the job.

    The names of pod groups are often generated (`podgroup-UID`, `NAME-UID`).
    """
    labels = pod.metadata.labels
    for row in _GANG_LABELS:
        if job := labels.get(row.label):
            numbers = [number for label in row.more if (number := labels.get(label, "")).isdecimal()]
            return "/".join([job, *numbers])
    owner = pod.metadata.controller
    if owner is None:
        return gang.partition("/")[2]
    return owner.name.removesuffix(f"-{labels.get(_TEMPLATE_HASH, '')}")  # of a Deployment, for its ReplicaSet


def list_job_names(pod: views.Pod) -> tuple[str, ...]:
    """Return the names of jobs in the labels that frameworks write to their pods."""
    return tuple(name for row in _GANG_LABELS if (name := pod.metadata.labels.get(row.label)))


def find_rank(pod: views.Pod) -> Rank:
    """Return the rank of a pod, from its framework's index label or else the number at the end of its name."""
    metadata = pod.metadata
    if metadata.labels.keys().isdisjoint(_RANK_LABELS):  # most pods of a cluster
        return Rank(1, _read_trailing_number(metadata.name), metadata.name)
    index = _read_index_label(metadata.labels)
    role, is_labelled = 0 if _is_first_rank(metadata) else 1, index is not None
    return Rank(role, _read_trailing_number(metadata.name) if index is None else index, metadata.name, is_labelled)


def has_controller_with_size(pod: views.Pod) -> bool:
    """True if the pod's controller is of a kind whose objects state the number of their pods."""
    owner = pod.metadata.controller
    if owner is None:
        return False
    group, _, version = owner.api_version.rpartition("/")
    kind = registry.find_kind(group, version, owner.kind)
    return kind is not None and kind.states_size


_TEMPLATE_HASH = "pod-template-hash"  # label and end of the name of a Deployment's ReplicaSet
GROUP_ANNOTATIONS = tuple(row.group_annotation for row in registry.FRAMEWORKS if row.group_annotation)
_GROUP_LABELS = tuple(row.group_label for row in registry.FRAMEWORKS if row.group_label)
_GANG_LABELS = tuple(row for framework in registry.FRAMEWORKS for row in framework.gang_labels)
_ROLE_LABELS = tuple(label for framework in registry.FRAMEWORKS for label in framework.role_labels)
_LEADERS = tuple(framework.leader for framework in registry.FRAMEWORKS if framework.leader is not None)
# Most pods of a cluster have no label of these sets, and nothing else is looked for in them.
_JOB_LABELS = frozenset(row.label for row in _GANG_LABELS)
INDEX_LABELS = tuple(label for framework in registry.FRAMEWORKS for label in framework.index_labels)
_RANK_LABELS = frozenset((*_ROLE_LABELS, *(label for label, _ in _LEADERS), *INDEX_LABELS))


def _is_first_rank(metadata: views.ObjectMeta) -> bool:
    labels = metadata.labels
    for label in _ROLE_LABELS:
        if role := labels.get(label):
            return role.lower().endswith(frameworks.FIRST_ROLES)
    for label, value in _LEADERS:  # noqa: SIM110 - hot path: a generator is slower
        if labels.get(label) == value:
            return True
    return False


def _read_index_label(labels: Mapping[str, str]) -> int | None:
    for label in INDEX_LABELS:
        text = labels.get(label, "")
        if text.isascii() and text.isdigit():
            return int(text[:9])  # no framework writes longer ones; converting a forged one could be slow
    return None


def _read_trailing_number(name: str) -> int:
    digits = name[len(name.rstrip("0123456789")) :]
    return int(digits[-9:]) if digits else _NO_INDEX


# --- sizes --------------------------------------------------------------------------------------------------


def _build_size_kind(kind: frameworks.WorkloadKind) -> frameworks.SizeKind:
    """Return the SizeKind of a kind of workload, which counts the pods that the controller creates for each gang."""

    def read_sizes(workload: frameworks.Workload) -> frameworks.SizeReport:
        owner, tree = workload.metadata, {"spec": workload.spec, "status": workload.status}
        controller = views.OwnerReference(kind=kind.name, name=owner.name, uid=owner.uid, controller=True)
        start = frameworks.TemplateContext(owner.name, "", 0, workload.spec, owner.uid)
        sizes: dict[GangKey, int] = {}
        try:
            origins = list(itertools.islice(frameworks.list_origins(kind, tree, start), frameworks.MAX_TEMPLATES))
        except frameworks.UnreadableError:  # not every custom resource is validated
            return {}
        for origin in origins:
            own = frameworks.get_mapping(origin.template, "metadata")
            for pods in kind.list_created_pods(origin):
                metadata = views.ObjectMeta(
                    namespace=owner.namespace,
                    labels_or_none={**_read_texts(own, "labels"), **origin.metadata.labels, **pods.labels},
                    annotations_or_none={**_read_texts(own, "annotations"), **pods.annotations},
                    owner_references_or_none=[controller],
                )
                gang = find_gang(views.Pod(metadata=metadata))
                sizes[gang] = sizes.get(gang, 0) + (pods.count if isinstance(pods.count, int) else 0)
        return sizes

    source, view = frameworks.SizeSource.OWNER, frameworks.Workload
    names = kind.group, kind.version, kind.name
    return frameworks.SizeKind(*names, source, view, read_sizes, kind.watch, kind.excludes_ended)


def _read_texts(metadata: frameworks.Tree, key: str) -> Mapping[str, str]:
    """Return labels or annotations, without values that are not text, which some custom resources permit."""
    values = frameworks.get_mapping(metadata, key)
    return {name: value for name, value in values.items() if isinstance(value, str)}


# the cluster state reads sizes from pods itself
PODS = frameworks.SizeKind("", "v1", "Pod", frameworks.SizeSource.POD, views.Pod, lambda _: {}, watch="pods")
SIZE_KINDS: Sequence[frameworks.SizeKind] = (
    *(kind for framework in registry.FRAMEWORKS for kind in framework.pod_groups),
    *(_build_size_kind(kind) for kind in registry.KINDS if kind.states_size),
)
_ANNOTATIONS = tuple(framework.size_annotation for framework in registry.FRAMEWORKS if framework.size_annotation)


def read_annotated_size(pod: views.Pod) -> int:
    """Return the gang size in an annotation of the pod, or 0."""
    for annotation in _ANNOTATIONS:
        text = pod.metadata.annotations.get(annotation, "")
        if text.isascii() and text.isdigit():
            return int(text[:6])  # truncated: parsing a long number costs time
    return 0
