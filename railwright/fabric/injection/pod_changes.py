"""The results of injection as values: the changes to a pod with their reasons, or why there are none.

Mutators produce these values, and the webhook turns them into a JSON Patch.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from railwright.fabric import names, text, views
from railwright.fabric.multus import network_selection
from railwright.fabric.reasons import reason as reasons
from railwright.fabric.reasons import rendering


class Change(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """One change of a pod. `entry` is its name in the record's `added` ("" = not listed), `reason` explains it."""

    entry: str
    reason: str


class SetAnnotation(Change, frozen=True):
    """Sets metadata.annotations[key], whether it exists or not."""

    key: str
    value: str


class SetNetworks(SetAnnotation, frozen=True):
    """Sets the networks annotation. `selections` are all attachments in the new value."""

    selections: tuple[network_selection.Selection, ...]


class SetLabel(Change, frozen=True):
    """Sets metadata.labels[key]. Only templates of workloads get one."""

    key: str
    value: str


class AddResource(Change, frozen=True):
    """Sets request and limit of a resource in a container to `quantity`, a whole number of devices."""

    container: int  # index in spec.containers
    resource: str
    quantity: int
    init: bool = False  # True: index in spec.initContainers


class RemoveResource(Change, frozen=True):
    """Removes request and limit of a resource from a container."""

    container: int
    resource: str
    init: bool = False


class SetClaim(Change, frozen=True):
    """Sets an entry of spec.resourceClaims to a template. `index` is the entry to replace, None for a new entry."""

    name: str
    template: str
    index: int | None = None


class UseClaim(Change, frozen=True):
    """Gives a container the devices of an entry of spec.resourceClaims."""

    container: int
    claim: str
    init: bool = False


class RemoveClaims(Change, frozen=True):
    """Removes entries of spec.resourceClaims by name, also from the containers."""

    claims: tuple[str, ...]


class AddVolume(Change, frozen=True):
    """Adds a volume to spec.volumes, as JSON."""

    volume: Mapping[str, Any]


class AddMount(Change, frozen=True):
    """Adds a mount to a container, as JSON."""

    container: int
    mount: Mapping[str, Any]


class AddCapability(Change, frozen=True):
    """Adds a capability to a container."""

    container: int
    capability: str


class SetPrivileged(Change, frozen=True):
    """Makes a container privileged."""

    container: int


class SetEnv(Change, frozen=True):
    """Sets a variable of a container to a literal, or to the field of the pod at `field_path`.

    `index` is the entry to replace, None for a new entry.
    """

    container: int
    name: str
    value: str
    index: int | None = None
    field_path: str = ""

    @property
    def source(self) -> dict[str, Any] | None:
        """Return valueFrom of the entry, None for a literal."""
        return {"fieldRef": {"fieldPath": self.field_path}} if self.field_path else None


class UnsetEnv(Change, frozen=True):
    """Removes the entry at `index` of a container's environment."""

    container: int
    index: int


class AddInitContainer(Change, frozen=True):
    """Appends an init container, as JSON."""

    init_container: Mapping[str, Any]


AnyChange = (
    SetAnnotation
    | SetNetworks
    | AddResource
    | RemoveResource
    | SetClaim
    | UseClaim
    | RemoveClaims
    | AddVolume
    | AddMount
    | AddCapability
    | SetPrivileged
    | SetEnv
    | UnsetEnv
    | AddInitContainer
    | SetLabel
)


RecordedReasons = Mapping[str, bytes]
"""Record entry -> a member of the record's object `reasons`, encoded once per table. A pod may lack the entry."""


class Contribution(msgspec.Struct, frozen=True):
    """The result of one mutator.

    `entries` name everything that the pod then has as the policy requires, whether it existed before or is added now. A
    second plan of an injected pod therefore has the same record.
    """

    changes: tuple[AnyChange, ...] = ()
    entries: tuple[str, ...] = ()
    warnings: tuple[reasons.Reason, ...] = ()
    user_values: Mapping[str, tuple[str, ...]] = {}  # container -> variables that keep the user's own value
    skipped: Mapping[str, reasons.Reason] = {}  # mutator or record entry -> reason for leaving it out
    recorded: tuple[RecordedReasons, ...] = ()  # of `entries`


EMPTY = Contribution()


def merge(contributions: Sequence[Contribution]) -> Contribution:
    """Merge the results of several mutators. Entries and warnings appear once, in order."""
    if len(contributions) == 1:
        return contributions[0]
    changes: list[AnyChange] = []
    entries: dict[str, None] = {}
    warnings: dict[reasons.Reason, None] = {}
    user_values: dict[str, tuple[str, ...]] = {}
    skipped: dict[str, reasons.Reason] = {}
    recorded: list[RecordedReasons] = []
    for contribution in contributions:
        if contribution is EMPTY:  # only saves time: merging it changes nothing
            continue
        changes += contribution.changes
        if contribution.entries:
            entries.update(dict.fromkeys(contribution.entries))
        if contribution.warnings:
            warnings.update(dict.fromkeys(contribution.warnings))
        if contribution.skipped:
            skipped.update(contribution.skipped)
        if contribution.recorded:
            recorded += [table for table in contribution.recorded if table not in recorded]
        for container, variables in contribution.user_values.items():
            user_values[container] = user_values.get(container, ()) + variables
    return Contribution(tuple(changes), tuple(entries), tuple(warnings), user_values, skipped, tuple(recorded))


class Injection(msgspec.Struct, frozen=True):
    """The outcome for a pod that opted in. There are no changes if the pod already has all of it."""

    fabric: str
    role: str
    containers: tuple[str, ...]
    rails: tuple[str, ...]
    changes: tuple[AnyChange, ...]
    warnings: tuple[rendering.Message, ...]
    pod: views.Pod  # after all changes
    networks: tuple[network_selection.Selection, ...]  # of its networks annotation
    targets: tuple[int, ...]  # indexes of the containers that the fabric is for, also of a pod without rails
    has_rails: bool  # False for a role without rails
    resources: frozenset[str]  # of the rails


class Refusal(msgspec.Struct, frozen=True):
    """The outcome for a pod that is rejected. The message names object, key, value, cause and fix."""

    fabric: str  # "" if the fabric is unknown
    reason: str  # one of rejection_codes.RejectionCode
    message: str
    role: str = ""  # "" if unknown
    problem: str = ""  # the message without the pod's name; "" if the message names no pod


class Audit(msgspec.Struct, frozen=True):
    """The outcome for a pod whose fabric is in audit mode: only its record is written."""

    fabric: str  # "" if the fabric is unknown
    role: str
    changes: tuple[AnyChange, ...]  # the record
    warnings: tuple[rendering.Message, ...]
    enforced: Injection | Refusal  # what would have been done

    @property
    def refusal(self) -> Refusal | None:
        """Return the rejection, None if the pod would be injected."""
        return self.enforced if isinstance(self.enforced, Refusal) else None

    @property
    def injection(self) -> Injection | None:
        """Return the injection, None if the pod would be rejected."""
        return self.enforced if isinstance(self.enforced, Injection) else None


class NotOptedIn(msgspec.Struct, frozen=True):
    """The outcome for a pod that did not opt in. It is not changed. `warnings` name keys that have no effect."""

    warnings: tuple[rendering.Message, ...] = ()


class RefusedError(Exception):
    """Raised by a mutator to end the plan with a Refusal. `plan` catches it."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


def refuse_networks(user_value: str, error: network_selection.InvalidNetworksError) -> RefusedError:
    """Return the refusal of a pod with an invalid networks annotation, or with one that rails cannot be added to."""
    where = f"annotation {names.NETWORKS} {text.quote(user_value)}: " if user_value else ""
    return RefusedError("networks", f"{where}{error}")
