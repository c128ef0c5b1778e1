"""Caches responses for equal pods, so that later pods of a gang, and of other jobs like it, are not planned again.

A response is planned from an excerpt of the pod: the fields that injection and lint read, without the names, addresses,
paths and commands in which such pods differ. Pods with equal excerpts have equal plans, because no plan sees other
fields; a test varies every field of a pod. Rejections are not cached, because their messages name the pod.
"""

import msgspec

from railwright.fabric import bounded_cache, names, views
from railwright.fabric.injection import environment, facts, keys
from railwright.fabric.lint import commands, fabric_context
from railwright.fabric.nccl import derive
from railwright.fabric.policy import model
from railwright.fabric.workloads import registry, roles
from webhook import reviews

_MAX_RESPONSES = 256  # a few KiB each; covers the jobs, roles and sizes that start within minutes
_MAX_POD = 64 << 10  # bytes of a pod that may have an excerpt; longer ones are not worth the memory
_ROWS = registry.FRAMEWORKS
LABELS = frozenset(name for row in _ROWS for name in (*row.roles, *row.role_labels, *row.operator_labels))
_GANG_LABELS = frozenset(gang.label for row in _ROWS for gang in row.gang_labels)  # of which only the presence is read
_DEVICES = names.DEV_INFINIBAND.rpartition("/")[2]  # the preflight container gets the mount that has these devices
_UNREAD_VARIABLE, _UNREAD_VOLUME = views.EnvVar(), views.Volume(name="?")  # which no volume is called


class ResponseCache:
    """Answers, each under one version of the policy and of the cluster facts."""

    def __init__(self) -> None:
        self.by_key: bounded_cache.BoundedCache[bytes, reviews.Answer] = bounded_cache.BoundedCache(_MAX_RESPONSES)

    def build_entry(
        self, pod: views.Pod, size: int, policy: model.Policy, cluster: facts.ClusterFacts
    ) -> tuple[bytes, views.Pod] | None:
        """Return the key of a pod of `size` bytes, and its excerpt; None if it is not cached."""
        if cluster.version is None or size > _MAX_POD:
            return None
        excerpt = _build_excerpt(pod, policy.compile_once(Read))
        flags = (cluster.watched, cluster.file_keys, cluster.without_templates)
        known = (cluster.version, cluster.namespace, cluster.namespace_labels, flags)
        return msgspec.json.encode((policy.digest, known, excerpt)), excerpt


class Read:
    """The annotations and variables with values that plans under a policy read."""

    def __init__(self, document: model.PolicyDocument) -> None:
        fabrics = document.fabrics.values()
        self.annotations = {names.NETWORKS, names.DEFAULT_NETWORK, names.DEFAULT_CONTAINER}
        self.annotations.update(fabric_context.OTHER_INTERFACES, *[fabric.annotations for fabric in fabrics])
        self.variables = {environment.LIBRARY_PATH, *derive.NAMES, *roles.VARIABLES}
        self.variables.update(*[fabric.env for fabric in fabrics])
        self.has_script = any(fabric.source_script for fabric in fabrics)  # which is put before commands


def _build_excerpt(pod: views.Pod, read: Read) -> views.Pod:
    """Return a pod with only the fields that plans read. List entries keep their positions for the patches."""
    spec, volumes = pod.spec, pod.spec.volumes
    words = [word for item in spec.containers for part in (item.command, item.args) for word in part or ()]
    has_read_words = read.has_script or any(map("".join(words).__contains__, commands.HINTS))
    read_volumes = {one.name for one in volumes if _is_read(one)}
    unread_volumes = {one.name for one in volumes} - read_volumes

    def reduce_variable(entry: views.EnvVar) -> views.EnvVar:
        is_read = (
            commands.is_relevant(entry.name) or entry.name in read.variables or "fileKeyRef" in (entry.value_from or {})
        )
        return entry if is_read else _UNREAD_VARIABLE

    def reduce_mount(mount: views.VolumeMount) -> views.VolumeMount:
        is_read = mount.name not in unread_volumes or _DEVICES in mount.mount_path
        return mount if is_read else views.VolumeMount(name=_UNREAD_VOLUME.name, mount_path=mount.mount_path)

    def reduce(container: views.Container) -> views.Container:
        has_read_command = has_read_words or container.name == names.PREFLIGHT_CONTAINER
        return msgspec.structs.replace(
            container,
            command=container.command if has_read_command else None,
            args=container.args if has_read_command else None,
            env_or_none=container.env_or_none and [*map(reduce_variable, container.env)],
            volume_mounts_or_none=container.volume_mounts_or_none and [*map(reduce_mount, container.volume_mounts)],
        )

    return views.Pod(
        metadata=_reduce_metadata(pod.metadata, read, keeps_labels=any(one.secret for one in volumes)),
        spec=msgspec.structs.replace(
            spec,
            scheduling_group=None,
            containers_or_none=[*map(reduce, spec.containers)],
            init_containers=spec.init_containers and [*map(reduce, spec.init_containers)],
            volumes_or_none=spec.volumes_or_none
            and [_UNREAD_VOLUME if one.name in unread_volumes else one for one in volumes],
        ),
    )


def _reduce_metadata(metadata: views.ObjectMeta, read: Read, *, keeps_labels: bool) -> views.ObjectMeta:
    """Return the metadata that plans read. `keeps_labels`: keep all, because any may name the job of an ssh volume."""
    labels, annotations = metadata.labels_or_none, metadata.annotations_or_none
    if labels and not keeps_labels:
        labels = {
            key: value if key not in _GANG_LABELS or key in LABELS else ""
            for key, value in labels.items()
            if key in LABELS or key in _GANG_LABELS or _is_own(key)
        }
    return views.ObjectMeta(
        labels_or_none=labels,
        annotations_or_none=annotations
        and {key: value for key, value in annotations.items() if key in read.annotations or _is_own(key)},
    )


def _is_own(key: str) -> bool:
    return key.startswith(keys.PREFIX) or key.endswith(keys.ENDINGS)


def _is_read(volume: views.Volume) -> bool:
    sources = (volume.empty_dir, volume.host_path, volume.secret, volume.downward_api)
    return any(source is not None for source in sources) or volume.name.startswith(names.VOLUME_PREFIX)
