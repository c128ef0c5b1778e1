"""A topology request: the gang of a workload that is being created, and the levels of domains that the policy names.

`kueue` and `volcano` translate it into fields of their scheduler.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from railwright.fabric import hypernodes, views
from railwright.fabric.injection import templates
from railwright.fabric.policy import compiled, model
from railwright.fabric.reasons import reason
from railwright.fabric.reasons.codes import AdmissionCode

REQUIRED, OFF = "required", "off"


class TemplatePods(msgspec.Struct, frozen=True):
    """The pods that a controller creates from one template of a gang. `pod` is one of them, `pods` their number."""

    template: templates.Template
    pod: views.Pod
    pods: int
    is_rank: bool  # its pods get rails


class TopologyRequest(msgspec.Struct, frozen=True):
    """Asks a scheduler to keep all pods of a workload in one domain."""

    workload: templates.Workload
    parts: tuple[TemplatePods, ...]
    placement: model.Placement
    segment: int = 1  # consecutive ranks that share a domain of the closest level

    @property
    def is_required(self) -> bool:
        """True if the gang must stay in one domain; False if it should."""
        return self.placement.gang_topology == REQUIRED

    @property
    def closest_key(self) -> str:
        """Return the key of the closest domains. A segment has to fit in one of them."""
        return next(iter(compiled.list_domain_keys(self.placement)), "")

    @property
    def rank_templates(self) -> tuple[TemplatePods, ...]:
        """Return the templates whose pods get rails."""
        return tuple([part for part in self.parts if part.is_rank and part.pods])

    @property
    def rank_count(self) -> int:
        """Return the number of ranks."""
        return sum(part.pods for part in self.rank_templates)

    def choose_level(self, is_known: Callable[[str], bool]) -> str:
        """Return the key of the level to ask for: the widest if the gang must be in one domain, otherwise the closest.

        `is_known` tells which keys the scheduler reads. Raises NotWrittenError if it reads none.
        """
        known_keys = [key for key in compiled.list_shared_domain_keys(self.placement) if is_known(key)]
        if not known_keys:
            raise NotWrittenError(
                "the scheduler reads none of the keys of placement.domains, so no topology is written",
                fix="name in placement.domains the key of a node label for Kueue, and levels of HyperNodes such as "
                "hypernode/level-1 for Volcano",
                code=AdmissionCode.TOPOLOGY_NO_KEY,
            )
        return known_keys[-1 if self.is_required else 0]

    def check_no_controller(self, field: str) -> None:
        """Raise NotWrittenError if another object controls the workload, because `field` would then have no effect."""
        if owner := self.workload.metadata.controller:
            raise NotWrittenError(f"{owner.kind} {owner.name} controls the workload, so {field} would have no effect")


class NotWrittenError(Exception):
    """Raised if railwright writes no topology. `reason` says why."""

    def __init__(self, message: str, fix: str = "", code: AdmissionCode = AdmissionCode.TOPOLOGY_NOT_WRITTEN) -> None:
        super().__init__(message)
        self.reason = reason.Reason(code, message, fix)


def build_error_for_authored_field(field: str) -> NotWrittenError:
    """Return the NotWrittenError for a topology field that the author has set."""
    return NotWrittenError(f"{field} is set in the manifest, so railwright sets no topology constraint")


def is_node_label(key: str) -> bool:
    """True if a domain key is a node label, not a level of HyperNodes."""
    return key not in hypernodes.LEVELS


class SchedulerFields(msgspec.Struct, frozen=True):
    """The topology fields of one scheduler. `level` is the domain key that they name, "" if they name none."""

    level: str
    fields: Mapping[str, Any] = {}  # JSON pointer of the workload -> value
    annotations: Mapping[str, Mapping[str, str]] = {}  # title of a template -> its annotations
    has_segments: bool = False  # each segment of the gang gets a domain of its own
