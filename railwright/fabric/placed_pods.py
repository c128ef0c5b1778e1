"""A pod as placement reads it: what it asks for, where it may go and whose it is, not what it runs.

Owns which fields of `views` are skipped while decoding: environment, mounts, images and programs are most of a pod's
bytes, and a list of 100,000 pods with them takes a gigabyte that nobody looks at. Every view here is one of `views`,
with the skipped fields at their defaults, so that whatever reads a pod reads this one; placement looks at none of them.
"""

from typing import Any

import msgspec

from railwright.fabric import views


def _skipped(number: int, default: Any = None) -> Any:
    """A field under a name that no object has, so that the real one is skipped like any unknown field."""
    return msgspec.field(default=default, name=f"-{number}")


class Container(views.InitContainer, frozen=True):
    """A container or init container: name, resources, restart policy."""

    image: str = _skipped(0, "")
    command: list[str] | None = _skipped(1)
    args: list[str] | None = _skipped(2)
    env_or_none: list[views.EnvVar] | None = _skipped(3)
    env_from: list[views.Source] | None = _skipped(4)
    volume_mounts_or_none: list[views.VolumeMount] | None = _skipped(5)
    security_context: views.SecurityContext | None = _skipped(6)


class PodSpec(views.PodSpec, frozen=True):
    """spec of a pod, without its volumes."""

    containers_or_none: list[Container] | None = msgspec.field(default=None, name="containers")  # type: ignore[assignment]  # frozen: nobody appends another kind
    init_containers: list[Container] | None = None  # type: ignore[assignment]  # as above
    volumes_or_none: list[views.Volume] | None = _skipped(0)
    security_context: views.SecurityContext | None = _skipped(1)
    resource_claims: list[views.Source] | None = _skipped(2)


class Pod(views.Pod, frozen=True):
    """A pod."""

    spec: PodSpec = PodSpec()
