"""Frozen, partial view of the custom resource FabricPolicy."""

from typing import Any

from railwright.fabric import views


class Metadata(views.ObjectMeta, frozen=True):
    """metadata of a custom resource."""

    generation: int = 0  # the API server increments it with each change of the spec


class Condition(views.View, frozen=True):
    """An entry of status.conditions."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    observed_generation: int = 0
    last_transition_time: str = ""


class Status(views.View, frozen=True):
    """The result of reading the spec of a generation."""

    observed_generation: int = 0
    digest: str = ""  # of the newest accepted spec
    conditions: tuple[Condition, ...] = ()


class FabricPolicy(views.View, frozen=True):
    """An object with a policy in its spec."""

    metadata: Metadata = Metadata()
    spec: dict[str, Any] | None = None
    status: Status | None = None
