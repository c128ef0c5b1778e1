"""The excerpt of a pod from which its admission is planned: what injection and lint read, and nothing else.

Pods of other jobs differ in names, paths, addresses and commands that no plan depends on. Their excerpts are equal, so
one response answers them all. A field that is missing here cannot mix up two pods, because no plan sees it: it would
change the plan of every pod that has it. A test plans generated pods with and without an excerpt.
"""

import operator
from collections.abc import Mapping

import msgspec

from railwright.fabric import names, views
from railwright.fabric.injection import environment, keys, record
from railwright.fabric.lint import commands, fabric_context
from railwright.fabric.policy import model as policies
from railwright.fabric.workloads import registry

# Labels with values that decide a role, and labels of which only the presence does.
_ROLES = frozenset(
    label for row in registry.FRAMEWORKS for label in (*row.roles, *row.role_labels, *row.operator_labels)
)
_MARKS = frozenset(
    label
    for row in registry.FRAMEWORKS
    for label in (row.launcher_rank_label, *[gang.label for gang in row.gang_labels])
)
# Labels and annotations that name the gang of a pod.
_GANG_LABELS = frozenset(
    label for row in registry.FRAMEWORKS for gang in row.gang_labels for label in (gang.label, *gang.more)
).union(*[row.group_labels for row in registry.FRAMEWORKS])
_GANG_ANNOTATIONS = frozenset(key for row in registry.FRAMEWORKS for key in row.gang_annotations)
_ANNOTATIONS = frozenset(
    {names.NETWORKS, names.DEFAULT_NETWORK, names.DEFAULT_CONTAINER, *fabric_context.OTHER_INTERFACES}
)
_VARIABLES = frozenset(name for row in registry.FRAMEWORKS for name in row.role_variables)
_COMMAND_WORDS = (*commands.HINTS, *{word for row in registry.FRAMEWORKS for word in row.command_words})
MAX_POD = 64 * 1024  # bytes of a pod that may have an excerpt: of its annotations, no more can be left out

_DEVICES = names.DEV_INFINIBAND.rpartition("/")[2]  # the preflight container gets the mount that has these devices
_get_secret = operator.attrgetter("secret")
_UNREAD_VARIABLE = views.EnvVar()
_UNREAD_VOLUME = views.Volume()


class Inputs(msgspec.Struct, frozen=True):
    """Lists the labels, annotations and variables with values that the plans under a policy read."""

    labels: frozenset[str]
    annotations: frozenset[str]
    variables: frozenset[str]
    reads_gang: bool  # a claim depends on it
    has_script: bool  # which is put before commands


def compile_inputs(document: policies.PolicyDocument) -> Inputs:
    """Return what the plans under a policy read."""
    fabrics = document.fabrics.values()
    reads_gang = any(fabric.claims is not None for fabric in fabrics)
    annotations = _ANNOTATIONS.union(
        *[fabric.annotations for fabric in fabrics],
        [fabric.network_annotation.key for fabric in fabrics if fabric.network_annotation],
    )
    library_paths = {environment.LIBRARY_PATH} if any(fabric.library_path for fabric in fabrics) else frozenset()
    return Inputs(
        labels=_ROLES | _GANG_LABELS if reads_gang else _ROLES,
        annotations=annotations | _GANG_ANNOTATIONS if reads_gang else annotations,
        variables=_VARIABLES.union(library_paths, *[{*fabric.env, *fabric.force_env} for fabric in fabrics]),
        reads_gang=reads_gang,
        has_script=any(fabric.source_script for fabric in fabrics),
    )


def build(pod: views.Pod, policy: policies.Policy) -> views.Pod:
    """Return the excerpt of a pod of at most MAX_POD bytes."""
    metadata, spec, inputs = pod.metadata, pod.spec, policy.compile_once(compile_inputs)
    containers = spec.containers
    command = "".join([word for item in containers for words in (item.command, item.args) for word in words or ()])
    keeps_commands = inputs.has_script or any(map(command.__contains__, _COMMAND_WORDS))
    volumes = spec.volumes_or_none
    read_volumes = {volume.name for volume in volumes or () if _is_read(volume)}
    has_topology = names.TOPOLOGY in metadata.annotations
    needs_gang = inputs.reads_gang or has_topology
    has_secret = any(map(_get_secret, volumes or ()))
    return views.Pod(
        metadata=_excerpt_metadata(metadata, inputs, keeps_labels=has_secret or has_topology),
        spec=msgspec.structs.replace(
            spec,
            containers_or_none=[
                _excerpt_container(item, inputs.variables, read_volumes, keeps_commands=keeps_commands)
                for item in containers
            ],
            init_containers=spec.init_containers and [_excerpt_init_container(item) for item in spec.init_containers],
            volumes_or_none=volumes
            and [volume if volume.name in read_volumes else _UNREAD_VOLUME for volume in volumes],
            scheduler_name="",
            priority=None,
            preemption_policy="",
            scheduling_group=spec.scheduling_group if needs_gang else None,
            workload_ref=spec.workload_ref if needs_gang else None,
        ),
    )


def fits(annotations: Mapping[str, str]) -> bool:
    """True if the annotations of a planned excerpt leave room for those that it lacks. The API server limits them."""
    return record.measure(annotations) <= record.MAX_ANNOTATIONS - MAX_POD


def _excerpt_metadata(metadata: views.ObjectMeta, inputs: Inputs, *, keeps_labels: bool) -> views.ObjectMeta:
    """Leave out what no plan reads. `keeps_labels`: any label may name the gang, or a volume of ssh keys."""
    labels, annotations, read_labels = metadata.labels_or_none, metadata.annotations_or_none, inputs.labels
    if labels and not keeps_labels:
        labels = {
            key: value if key in read_labels or key not in _MARKS else ""
            for key, value in labels.items()
            if key in read_labels or key in _MARKS or key.startswith(keys.PREFIX) or key.endswith(keys.ENDINGS)
        }
    return views.ObjectMeta(
        labels_or_none=labels,
        annotations_or_none=annotations
        and {
            key: value
            for key, value in annotations.items()
            if key in inputs.annotations or key.startswith(keys.PREFIX) or key.endswith(keys.ENDINGS)
        },
        owner_references_or_none=metadata.owner_references_or_none if inputs.reads_gang else None,
    )


def _excerpt_container(
    container: views.Container, variables: frozenset[str], read_volumes: set[str], *, keeps_commands: bool
) -> views.Container:
    """Leave out what no plan reads. Entries of lists keep their positions, by which a patch and a warning name them."""
    env, mounts = container.env_or_none, container.volume_mounts_or_none
    return msgspec.structs.replace(
        container,
        command=container.command if keeps_commands else None,
        args=container.args if keeps_commands else None,
        env_or_none=env
        and [
            entry
            if (name := entry.name)[: commands.START_LENGTH] in commands.STARTS or name in variables
            else _UNREAD_VARIABLE
            for entry in env
        ],
        volume_mounts_or_none=mounts
        and [
            mount
            if mount.name in read_volumes
            or mount.name.startswith(names.VOLUME_PREFIX)
            or _DEVICES in mount.mount_path
            or "" in read_volumes  # a mount without a name would be that of the volume without one
            else views.VolumeMount(mount_path=mount.mount_path)
            for mount in mounts
        ],
    )


def _excerpt_init_container(container: views.Container) -> views.Container:
    """Leave out what no plan reads. The command tells railwright's own container."""
    return msgspec.structs.replace(
        container,
        image="",
        command=container.command if container.name == names.PREFLIGHT_CONTAINER else None,
        args=None,
        env_or_none=None,
        env_from=None,
        volume_mounts_or_none=None,
        volume_devices=None,
    )


def _is_read(volume: views.Volume) -> bool:
    return (
        volume.empty_dir is not None
        or volume.host_path is not None
        or volume.secret is not None
        or volume.downward_api is not None
        or volume.name.startswith(names.VOLUME_PREFIX)
    )
