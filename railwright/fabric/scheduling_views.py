"""Views of pods with only the fields that placement reads.

Environment, mounts, images and commands are skipped while decoding. They are most of a pod's bytes: with them, a list
of 100,000 pods takes a gigabyte more. Each class here is a subclass of one in `views` with the skipped fields at their
defaults, so code that reads a pod accepts it.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from railwright.fabric import views


def _skip(number: int, default: Any = None) -> Any:
    """Return a field with a name that no object has, so that the decoder skips the real field as unknown."""
    return msgspec.field(default=default, name=f"-{number}")


class Container(views.Container, frozen=True):
    """A container or init container, with name, resources and restart policy."""

    image: str = _skip(0, "")
    command: list[str] | None = _skip(1)
    args: list[str] | None = _skip(2)
    env_or_none: list[views.EnvVar] | None = _skip(3)
    env_from: list[views.Source] | None = _skip(4)
    volume_mounts_or_none: list[views.VolumeMount] | None = _skip(5)
    security_context: views.SecurityContext | None = _skip(6)


class PodSpec(views.PodSpec, frozen=True):
    """spec of a pod without its volumes."""

    containers_or_none: list[Container] | None = msgspec.field(default=None, name="containers")  # type: ignore[assignment]  # safe because frozen: nothing appends another type
    init_containers: list[Container] | None = None  # type: ignore[assignment]  # as above
    volumes_or_none: list[views.Volume] | None = _skip(0)
    security_context: views.SecurityContext | None = _skip(1)


class Pod(views.Pod, frozen=True):
    """A pod with only the fields that placement reads."""

    spec: PodSpec = PodSpec()


class BriefContainer(views.View, frozen=True):
    """A container or init container with its resource requests only."""

    name: str = ""
    resources: views.ResourceRequirements | None = None
    restart_policy: str | None = None


class BriefSpec(views.View, frozen=True):
    """spec of a pod with its node and resource requests only."""

    containers: list[BriefContainer] | None = None
    init_containers: list[BriefContainer] | None = None
    resource_claims: list[views.PodResourceClaim] | None = None
    node_name: str = ""
    scheduler_name: str = ""


class BriefStatus(views.View, frozen=True):
    """status of a pod without its conditions."""

    phase: str = ""
    resource_claim_statuses: list[views.PodResourceClaimStatus] | None = None


class BriefPod(views.View, frozen=True):
    """A pod with its node and resource requests only. Pods with very many values are read as this type to save time."""

    metadata: views.ObjectMeta = views.ObjectMeta()
    spec: BriefSpec = BriefSpec()
    status: BriefStatus = BriefStatus()


MAX_VALUES = 10_000  # in the fields of a pod that placement reads; 256 containers have about 5,000
_MAX_CLAIMS = 256  # of a pod with too many values
_ZEROS = ("0", 0)  # amounts that need no node: a pod may name any number of resources so


def complete(pod: Pod | BriefPod) -> Pod:
    """Return a pod as it is, or convert a BriefPod: with its controller, first claims and first requested amounts.

    kube-scheduler and kubelet still count all its requests.
    """
    if isinstance(pod, Pod):
        return pod
    spec, status, controller = pod.spec, pod.status, pod.metadata.controller
    owners = [controller] if controller is not None else None
    return Pod(
        metadata=msgspec.structs.replace(pod.metadata, owner_references_or_none=owners),
        spec=PodSpec(
            containers_or_none=list(_list_requesting(spec.containers or ())),
            init_containers=list(_list_requesting(spec.init_containers or ())),
            resource_claims=(spec.resource_claims or [])[:_MAX_CLAIMS],
            node_name=spec.node_name,
            scheduler_name=spec.scheduler_name,
        ),
        status=views.PodStatus(
            phase=status.phase, resource_claim_statuses=(status.resource_claim_statuses or [])[:_MAX_CLAIMS]
        ),
    )


def _list_requesting(containers: Sequence[BriefContainer]) -> Iterator[Container]:
    """Yield the first containers that request an amount above 0, until there are too many amounts."""
    count = 0
    for container in containers:
        if (resources := container.resources) is None:
            continue
        requests = {
            name: amount for name, amount in {**resources.limits, **resources.requests}.items() if amount not in _ZEROS
        }
        count += len(requests)
        if count > MAX_VALUES:
            return
        if requests:
            yield Container(
                name=container.name,
                resources=views.ResourceRequirements(requests_or_none=requests),
                restart_policy=container.restart_policy,
            )
