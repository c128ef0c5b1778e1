"""Types of linting the claims that a pod refers to: what a rule reads, and the rule itself."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from railwright.fabric import views
from railwright.fabric.lint import claim_types, rule_types


class PodClaimContext(msgspec.Struct, frozen=True):
    """A pod or pod template, and the templates of claims in the same files."""

    title: str  # "Job prod/llm"
    spec: views.PodSpec
    templates: Mapping[str, claim_types.ClaimedDevices] = {}  # by name
    accelerators: tuple[str, ...] = ("nvidia.com/gpu",)

    def list_containers(self) -> Iterator[tuple[views.Container, claim_types.Path]]:
        """Yield the containers, those of initialization first, each with its path below the pod's spec."""
        for index, init_container in enumerate(self.spec.init_containers or ()):
            yield init_container, ("initContainers", index)
        for index, container in enumerate(self.spec.containers):
            yield container, ("containers", index)

    def list_used(self) -> set[str]:
        """Return the entries of spec.resourceClaims that containers use."""
        return {
            claim.name
            for container, _ in self.list_containers()
            if container.resources is not None
            for claim in container.resources.claims
        }


class PodClaimExample(msgspec.Struct, frozen=True):
    """An example of a rule, as in manifests: the spec of a pod, and `devices` of templates by name."""

    spec: Mapping[str, Any]
    templates: Mapping[str, Mapping[str, Any]] = {}

    def build_context(self) -> PodClaimContext:
        """Return the pod as rules read it."""
        return PodClaimContext(
            "",
            msgspec.convert(self.spec, views.PodSpec),
            {name: claim_types.read_devices(devices) for name, devices in self.templates.items()},
        )


class PodClaimRule(msgspec.Struct, frozen=True, kw_only=True):
    """A rule about the claims of a pod. Paths of its violations are below the pod's spec."""

    code: str  # C10
    name: str
    severity: rule_types.Severity
    title: str
    explanation: str
    source: str
    good: PodClaimExample
    bad: PodClaimExample
    check: Callable[[PodClaimContext], Iterable[claim_types.ClaimViolation]]
