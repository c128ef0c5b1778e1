"""Views of pods with only the fields that placement reads.

Environment, mounts, images and commands are skipped while decoding. They are most of a pod's bytes: with them, a list
of 100,000 pods takes a gigabyte more. Each class here is a subclass of one in `views` with the skipped fields at their
defaults, so code that reads a pod accepts it.
"""

from typing import Any

import msgspec

from railwright.fabric import views


def _define_unread_field(number: int, default: Any = None) -> Any:
    """Return a field with a name that no object has, so that the decoder skips the real field as unknown."""
    return msgspec.field(default=default, name=f"-{number}")


class Container(views.Container, frozen=True):
    """A container or init container, with name, resources and restart policy."""

    image: str = _define_unread_field(0, "")
    command: list[str] | None = _define_unread_field(1)
    args: list[str] | None = _define_unread_field(2)
    env_or_none: list[views.EnvVar] | None = _define_unread_field(3)
    env_from: list[views.Source] | None = _define_unread_field(4)
    volume_mounts_or_none: list[views.VolumeMount] | None = _define_unread_field(5)
    security_context: views.SecurityContext | None = _define_unread_field(6)


class PodSpec(views.PodSpec, frozen=True):
    """spec of a pod without its volumes."""

    containers_or_none: list[Container] | None = msgspec.field(default=None, name="containers")  # type: ignore[assignment]  # safe because frozen: nothing appends another type
    init_containers: list[Container] | None = None  # type: ignore[assignment]  # as above
    volumes_or_none: list[views.Volume] | None = _define_unread_field(0)
    security_context: views.SecurityContext | None = _define_unread_field(1)


class Pod(views.Pod, frozen=True):
    """A pod with only the fields that placement reads."""

    spec: PodSpec = PodSpec()


MAX_VALUES = 10_000  # in the fields of a pod that placement reads; 256 containers have about 5,000
