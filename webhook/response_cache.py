"""Caches responses for equal pods, so that later pods of a gang, and of other jobs like it, are not planned again.

A response is planned from an excerpt of the pod: the fields that injection and lint read, without the names, addresses,
paths and commands in which such pods differ. Pods with equal excerpts have equal plans, because no plan sees other
fields; a test varies every field of a pod. Rejections are not cached, because their messages name the pod.
"""

from collections.abc import Callable

import msgspec

from railwright.fabric import bounded_cache, names, views
from railwright.fabric.injection import environment, facts, keys
from railwright.fabric.lint import commands, rank_contexts
from railwright.fabric.nccl import derive
from railwright.fabric.policy import model
from railwright.fabric.workloads import registry, roles
from webhook import reviews

_MAX_RESPONSES = 256  # a few KiB each; covers the jobs, roles and sizes that start within minutes
_MAX_NAMES = 4096  # stored names of annotations and variables, each with whether plans read it
_MAX_NAME = 320  # characters of a stored name; the API server accepts no longer keys of annotations
_MAX_POD = 64 << 10  # bytes of a pod that may have an excerpt; longer ones are not worth the memory
_ROWS = registry.FRAMEWORKS
LABELS = frozenset(name for row in _ROWS for name in (*row.roles, *row.role_labels, *row.ssh_worker))
_ONLY_PRESENT = frozenset(gang.label for row in _ROWS for gang in row.gang_labels) - LABELS  # whose values are unread
_DEVICES = names.DEV_INFINIBAND.rpartition("/")[2]  # the preflight container gets the mount that has these devices
_INTERFACES = "_if_"  # in names of Open MPI's lists, which injection looks for
_UNREAD_VARIABLE, _UNREAD_VOLUME = views.EnvVar(), views.Volume(name="?")  # which no volume is called


class ResponseCache:
    """Caches answers, each for one version of the policy and of the cluster facts."""

    def __init__(self) -> None:
        self.by_key: bounded_cache.BoundedCache[bytes, reviews.Answer] = bounded_cache.BoundedCache(_MAX_RESPONSES)

    def build_entry(
        self, pod: views.Pod, size: int, policy: model.Policy, cluster: facts.ClusterFacts
    ) -> tuple[bytes, views.Pod] | None:
        """Return the key of a pod of `size` bytes, and its excerpt; None for a pod that is not cached."""
        if cluster.version is None or size > _MAX_POD:
            return None
        excerpt = _build_excerpt(pod, policy.compile_once(PlanInputs))
        flags = (cluster.watched, cluster.file_keys, cluster.without_templates)
        known = (cluster.version, cluster.namespace, cluster.namespace_labels, flags)
        return msgspec.json.encode((policy.digest, known, excerpt)), excerpt


class PlanInputs:
    """The annotations, and the variables with their values, that plans under a policy read."""

    def __init__(self, document: model.PolicyDocument) -> None:
        fabrics = document.fabrics.values()
        self.annotations = {names.NETWORKS, names.DEFAULT_NETWORK, names.DEFAULT_CONTAINER}
        self.annotations.update(rank_contexts.OTHER_INTERFACES, *[fabric.annotations for fabric in fabrics])
        self.variables = {environment.LIBRARY_PATH, *derive.NAMES, *roles.VARIABLES}
        self.variables.update(*[fabric.env for fabric in fabrics])
        self.has_script = any(fabric.source_script for fabric in fabrics)  # which is put before commands
        self.reads_annotation = _Verdicts(lambda key: key in self.annotations or _is_own(key))
        self.reads_variable = _Verdicts(
            lambda name: name in self.variables or commands.is_relevant(name) or _INTERFACES in name
        )


class _Verdicts(dict[str, bool]):
    """Maps the name of an annotation or variable to whether plans read it. Most pods have the same names."""

    def __init__(self, is_read: Callable[[str], bool]) -> None:
        super().__init__()
        self._is_read = is_read

    def __missing__(self, name: str) -> bool:
        is_read = self._is_read(name)
        if len(self) >= _MAX_NAMES:
            self.clear()
        if len(name) <= _MAX_NAME:
            self[name] = is_read
        return is_read


def _build_excerpt(pod: views.Pod, read: PlanInputs) -> views.Pod:
    """Return a pod with only the fields that plans read. List entries keep their positions for the patches."""
    spec, volumes, reads_variable = pod.spec, pod.spec.volumes, read.reads_variable
    words = [word for item in spec.containers for part in (item.command, item.args) for word in part or ()]
    has_read_words = read.has_script or commands.has_hint(words) or any(_INTERFACES in word for word in words)
    unread_volumes = {one.name for one in volumes} - {one.name for one in volumes if _is_read(one)}

    def reduce(container: views.Container) -> views.Container:
        has_read_command = has_read_words or container.name == names.PREFLIGHT_CONTAINER
        return msgspec.structs.replace(
            container,
            command=container.command if has_read_command else None,
            args=container.args if has_read_command else None,
            env_or_none=container.env_or_none
            and [
                entry
                if reads_variable[entry.name] or (entry.value_from is not None and "fileKeyRef" in entry.value_from)
                else _UNREAD_VARIABLE
                for entry in container.env_or_none
            ],
            volume_mounts_or_none=container.volume_mounts_or_none
            and [
                mount
                if mount.name not in unread_volumes or _DEVICES in mount.mount_path
                else views.VolumeMount(name=_UNREAD_VOLUME.name, mount_path=mount.mount_path)
                for mount in container.volume_mounts_or_none
            ],
        )

    return views.Pod(
        metadata=_reduce_metadata(pod.metadata, read, keeps_labels=any(one.secret for one in volumes)),
        spec=msgspec.structs.replace(
            spec,
            scheduling_group=None,
            containers_or_none=[reduce(one) for one in spec.containers],
            init_containers=spec.init_containers and [reduce(one) for one in spec.init_containers],
            volumes_or_none=spec.volumes_or_none
            and [_UNREAD_VOLUME if one.name in unread_volumes else one for one in volumes],
        ),
    )


def _reduce_metadata(metadata: views.ObjectMeta, read: PlanInputs, *, keeps_labels: bool) -> views.ObjectMeta:
    """Return the metadata that plans read. `keeps_labels`: keep all, because any may name the job of an ssh volume."""
    labels, annotations = metadata.labels_or_none, metadata.annotations_or_none
    if labels and not keeps_labels:
        labels = {key: value if key not in _ONLY_PRESENT else "" for key, value in labels.items() if _READS_LABEL[key]}
    return views.ObjectMeta(
        labels_or_none=labels,
        annotations_or_none=annotations
        and {key: value for key, value in annotations.items() if read.reads_annotation[key]},
    )


def _is_own(key: str) -> bool:
    return key.startswith(keys.PREFIX) or key.endswith(keys.ENDINGS)


_READS_LABEL = _Verdicts(lambda key: key in LABELS or key in _ONLY_PRESENT or _is_own(key))


def _is_read(volume: views.Volume) -> bool:
    return (
        volume.empty_dir is not None
        or volume.host_path is not None
        or volume.secret is not None
        or volume.downward_api is not None
        or volume.name.startswith(names.VOLUME_PREFIX)
    )
