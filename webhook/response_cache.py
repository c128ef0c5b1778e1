"""Caches answers for equal pods, so that later pods of a gang, and of jobs like it, are not planned again.

An answer is planned from an excerpt of the pod: the fields that injection and lint read, without the names, addresses,
paths and commands in which such pods differ. Pods with equal excerpts have equal plans, because no plan sees other
fields; a test varies every field of a pod. Rejections are not cached, because their messages name the pod.
"""

import functools
from collections.abc import Container

import msgspec

from railwright.fabric import bounded_cache, names, views
from railwright.fabric.injection import environment, facts, keys
from railwright.fabric.lint import commands, rank_contexts
from railwright.fabric.nccl import derive
from railwright.fabric.policy import model
from railwright.fabric.workloads import registry, roles
from webhook import reviews

_MAX_RESPONSES = 256  # a few KiB each; covers the jobs, roles and sizes that start within minutes
_MAX_POD = 64 << 10  # bytes of a pod that may have an excerpt; longer ones are not worth the memory
_ROWS = registry.FRAMEWORKS
LABELS = frozenset(name for row in _ROWS for name in (*row.roles, *row.role_labels, *row.ssh_worker))
_ONLY_PRESENT = frozenset(gang.label for row in _ROWS for gang in row.gang_labels) - LABELS  # whose values are unread
_DEVICES = names.DEV_INFINIBAND.rpartition("/")[2]  # the preflight container gets the mount that has these devices
_INTERFACES = "_if_"  # in names of Open MPI's lists, which injection looks for
_UNREAD_VARIABLE, _UNREAD_VOLUME = views.EnvVar(), views.Volume(name="?")  # which no volume is called


class ResponseCache(bounded_cache.BoundedCache[bytes, reviews.Answer]):
    """Answers by the excerpt of the pod, the version of the policy and the version of the cluster facts."""

    def __init__(self) -> None:
        super().__init__(_MAX_RESPONSES)

    def build_entry(
        self, pod: views.Pod, size: int, policy: model.Policy, cluster: facts.ClusterFacts
    ) -> tuple[bytes, views.Pod] | None:
        """Return the cache key and the excerpt of a pod of `size` bytes; None for a pod that is not cached."""
        if cluster.version is None or size > _MAX_POD:
            return None
        excerpt = policy.compile_once(PlanInputs).build_excerpt(pod)
        flags = (cluster.watched, cluster.file_keys, cluster.without_templates)
        known = (cluster.version, cluster.namespace, cluster.namespace_labels, flags)
        return msgspec.json.encode((policy.digest, known, excerpt)), excerpt


class PlanInputs:
    """The annotations and variables that the planning of a pod reads under a policy."""

    def __init__(self, document: model.PolicyDocument) -> None:
        fabrics = document.fabrics.values()
        self.annotations = {names.NETWORKS, names.DEFAULT_NETWORK, names.DEFAULT_CONTAINER}
        self.annotations.update(rank_contexts.OTHER_INTERFACES, *[fabric.annotations for fabric in fabrics])
        self._variables = {environment.LIBRARY_PATH, *derive.NAMES, *roles.VARIABLES}
        self._variables.update(*[fabric.env for fabric in fabrics])
        self._has_script = any(fabric.source_script for fabric in fabrics)  # which is put before commands

    def build_excerpt(self, pod: views.Pod) -> views.Pod:
        """Return a pod with only the fields that planning reads. List entries keep their positions for the patches."""
        spec, labels, annotations = pod.spec, pod.metadata.labels_or_none, pod.metadata.annotations_or_none
        words = [word for item in spec.containers for part in (item.command, item.args) for word in part or ()]
        reads_words = (
            self._has_script or commands.may_contain_settings(words) or any(_INTERFACES in word for word in words)
        )
        unread_volumes = {one.name for one in spec.volumes} - {one.name for one in spec.volumes if _reads_volume(one)}
        if labels and not any(one.secret for one in spec.volumes):  # any label may name the job of an ssh volume
            labels = {
                key: "" if key in _ONLY_PRESENT else value
                for key, value in labels.items()
                if key in LABELS or key in _ONLY_PRESENT or _is_railwright_key(key)
            }
        if annotations:
            annotations = {
                key: value for key, value in annotations.items() if key in self.annotations or _is_railwright_key(key)
            }
        excerpt = functools.partial(self._excerpt_container, unread_volumes=unread_volumes, reads_words=reads_words)
        return views.Pod(
            metadata=views.ObjectMeta(labels_or_none=labels, annotations_or_none=annotations),
            spec=msgspec.structs.replace(
                spec,
                scheduling_group=None,
                containers_or_none=[excerpt(one) for one in spec.containers],
                init_containers=spec.init_containers and [excerpt(one) for one in spec.init_containers],
                volumes_or_none=spec.volumes_or_none
                and [_UNREAD_VOLUME if one.name in unread_volumes else one for one in spec.volumes],
            ),
        )

    def _excerpt_container(
        self, container: views.Container, unread_volumes: Container[str], *, reads_words: bool
    ) -> views.Container:
        keeps_words = reads_words or container.name == names.PREFLIGHT_CONTAINER
        return msgspec.structs.replace(
            container,
            command=container.command if keeps_words else None,
            args=container.args if keeps_words else None,
            env_or_none=container.env_or_none
            and [entry if self._reads_variable(entry) else _UNREAD_VARIABLE for entry in container.env_or_none],
            volume_mounts_or_none=container.volume_mounts_or_none
            and [
                mount
                if mount.name not in unread_volumes or _DEVICES in mount.mount_path
                else views.VolumeMount(name=_UNREAD_VOLUME.name, mount_path=mount.mount_path)
                for mount in container.volume_mounts_or_none
            ],
        )

    def _reads_variable(self, entry: views.EnvVar) -> bool:
        name = entry.name
        if entry.value_from is not None and "fileKeyRef" in entry.value_from:
            return True
        return name in self._variables or commands.is_linted_variable(name) or _INTERFACES in name


def _is_railwright_key(key: str) -> bool:
    return key.startswith(keys.PREFIX) or key.endswith(keys.ENDINGS)


def _reads_volume(volume: views.Volume) -> bool:
    sources = (volume.empty_dir, volume.host_path, volume.secret, volume.downward_api)
    return any(source is not None for source in sources) or volume.name.startswith(names.VOLUME_PREFIX)
