"""Reads a pod's fabric, rails and devices from its labels, annotations and requests, and the record of its injection.

Injection, placement and overview read them by this module only. The rules are in docs/interface.md 1, 5 and 7.2.
"""

import functools
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from railwright.fabric import names, resources, text, views
from railwright.fabric.claims import objects
from railwright.fabric.policy import compiled, model
from railwright.fabric.reasons.reason import Reason

Networks = Mapping[tuple[str, str], str | None]
"""(namespace, name) of a NetworkAttachmentDefinition -> the device plugin resource it uses, None if it uses none."""

# --- the injection record ---------------------------------------------------------------------------------

_MAX_SHARED = 8192  # characters of a record that is kept for the next pods; a real one has one or two thousand
_MAX_DIGEST = 80  # characters: sha256: and 64 digits are 71


class Record(msgspec.Struct, frozen=True):
    """The content of the annotation `injection`, keys in this order (docs/interface.md 5).

    `rails` is () if the role gets none, such as a launcher, and None if there is no record. `reasons` has the code of
    each variable in `added`.
    """

    version: str = ""
    policy: str = ""
    fabric: str = ""
    role: str = ""
    containers: tuple[str, ...] = ()
    rails: tuple[str, ...] | None = None
    added: tuple[str, ...] = ()
    user_values: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=dict, name="kept")
    skipped: Mapping[str, Reason] = {}
    reasons: Mapping[str, str] = {}

    @property
    def digest(self) -> str:
        """Return the digest of the policy, "" if it is too long to be one."""
        return self.policy if len(self.policy) <= _MAX_DIGEST else ""


class InvalidRecordError(ValueError):
    """Raised if the annotation is no record. The message gives the reason."""


_NO_RECORD = Record()
_decoder = msgspec.json.Decoder(Record)


def read_record(pod: views.Pod) -> Record:
    """Return the injection record of a pod; an empty one if it is absent or invalid."""
    value = pod.metadata.annotations.get(names.INJECTION)
    try:
        return decode_record(value) if value else _NO_RECORD
    except InvalidRecordError:
        return _NO_RECORD


def decode_record(text: str) -> Record:
    """Return the record in an annotation. Raises InvalidRecordError."""
    return _decode_shared(text) if len(text) <= _MAX_SHARED else _decode_record(text)


def _decode_record(text: str) -> Record:
    try:
        return _decoder.decode(text)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InvalidRecordError(str(error)) from None


_decode_shared = functools.lru_cache(maxsize=256)(_decode_record)  # the pods of a gang have one text

# --- the fabric -------------------------------------------------------------------------------------------


def has_fabric_label(pod: views.Pod) -> bool:
    """True if the pod's own label opts it in."""
    return pod.metadata.labels.get(names.FABRIC, names.FABRIC_NONE) != names.FABRIC_NONE


def is_opted_in(pod: views.Pod) -> bool:
    """True if a pod opted in: by its label, or by its namespace, in which case the webhook has written a record."""
    label = pod.metadata.labels.get(names.FABRIC, "")
    return label != names.FABRIC_NONE and bool(label or names.INJECTION in pod.metadata.annotations)


def find_fabric_name(pod: views.Pod, document: model.PolicyDocument) -> str:
    """Return the fabric's name in a pod's label or record, even if the policy lacks the fabric; "" if there is none.

    Without a label the injection record counts: the webhook writes it for pods that their namespace opted in.
    """
    label = pod.metadata.labels.get(names.FABRIC, "")
    if label == names.FABRIC_NONE:
        return ""
    return document.resolve_fabric_name(label) or read_record(pod).fabric or label


def find_fabric(pod: views.Pod, document: model.PolicyDocument) -> tuple[str, model.Fabric | None]:
    """Return name and fabric to which a pod opted in; ("", None) without an opt-in, or if the policy lacks the fabric.

    A pod without a record has not opted in while the policy is in mode `warn`.
    """
    name = find_fabric_name(pod, document)
    fabric = document.fabrics.get(name)
    if fabric is None or (read_record(pod).rails is None and not document.is_enforced):
        return "", None
    return name, fabric


# --- the rails --------------------------------------------------------------------------------------------


_RAIL_VALUES = "a count, names or a range such as rail0-rail3"


class InvalidRailsError(ValueError):
    """Raised if the annotation `rails` is invalid. The message has the cause and the fix."""


def parse_rails(annotation: str, rail_names: Sequence[str]) -> tuple[str, ...]:
    """Return the rails that an annotation selects, in the fabric's order. Raises InvalidRailsError.

    The value is a count, or names and ranges. Duplicates are merged.
    """
    value, number = annotation.strip(), len(rail_names)
    if not value:
        fix = f"write {_RAIL_VALUES}, or remove the annotation to get all"
        raise InvalidRailsError(f"is empty; the fabric has {', '.join(rail_names)}: {fix}")
    if is_rail_count(value):
        count = int(value[:9])  # limits the work; no fabric has as many rails
        if not 0 < count <= number:
            fix = f"request 1 to {number}, or remove the annotation to get all"
            raise InvalidRailsError(f"the fabric has {text.format_count(number, 'rail')}; {fix}")
        return tuple(rail_names[:count])
    index_by_name = {name: index for index, name in enumerate(rail_names)}
    selected: set[int] = set()
    for item in map(str.strip, value.split(",")):
        first, last = _parse_range(item, index_by_name)
        if last < first:
            raise InvalidRailsError(f"{text.quote(item)} is reversed; write the earlier rail first")
        selected.update(range(first, last + 1))
    return tuple(rail_names[index] for index in sorted(selected))


def is_rail_count(annotation: str) -> bool:
    """True if an annotation `rails` is a number of rails."""
    value = annotation.strip()
    return value.isascii() and value.isdigit()


def _parse_range(item: str, index_by_name: Mapping[str, int]) -> tuple[int, int]:
    """Return first and last index of a name or a range. Rail names may contain '-', so each name is tried."""
    if item in index_by_name:
        return index_by_name[item], index_by_name[item]
    for first, index in index_by_name.items():
        if item.startswith(f"{first}-") and (last := item[len(first) + 1 :]) in index_by_name:
            return index, index_by_name[last]
    fabric_has = f"the fabric has {', '.join(index_by_name)}"
    raise InvalidRailsError(f"{text.quote(item)} is not a rail or a range; {fabric_has}; write {_RAIL_VALUES}")


def find_rails(pod: views.Pod, rail_names: Sequence[str]) -> frozenset[str]:
    """Return the rails of an admitted pod: those of its record, else of its annotation, else all.

    A non-empty record without any of `rail_names`, and an annotation that the webhook would reject, are ignored.
    """
    recorded = read_record(pod).rails
    if recorded is not None and (not recorded or not set(recorded).isdisjoint(rail_names)):
        return frozenset(recorded)
    annotation = pod.metadata.annotations.get(names.RAILS)
    try:
        return frozenset(rail_names if annotation is None else parse_rails(annotation, rail_names))
    except InvalidRailsError:
        return frozenset(rail_names)


# --- the NVLink domain ------------------------------------------------------------------------------------

_MAX_SEGMENT_DIGITS = 6  # Kubernetes supports no gang of a million pods


def read_segment(annotation: str) -> int | None:
    """Return the number of ranks in the annotation `segment`; None if it is not a positive number."""
    digits = annotation.strip()
    is_number = is_rail_count(digits) and len(digits) <= _MAX_SEGMENT_DIGITS
    return int(digits) or None if is_number else None


def find_segment(pod: views.Pod, fabric: model.Fabric) -> int:
    """Return the number of consecutive ranks that must share an NVLink domain; 1 if there is no such rule.

    An invalid annotation counts as absent, because the webhook rejects it.
    """
    if fabric.nvlink_segment is None:
        return 1
    annotation = pod.metadata.annotations.get(names.SEGMENT)
    return (annotation and read_segment(annotation)) or fabric.nvlink_segment


# --- the devices of the rails -----------------------------------------------------------------------------


class Need(msgspec.Struct, frozen=True):
    """The devices that a pod needs from one pool: those of one rail, or of several rails that share the resource."""

    rails: tuple[str, ...]
    resource: str
    amount: int  # milli-units

    @property
    def display_name(self) -> str:
        """Return the display name of the rails: `rail0` or `rail0..rail3`."""
        return format_rails(self.rails)


def format_rails(rail_names: Sequence[str]) -> str:
    """Return the display name of the rails of one pool: `rail0`, or `rail0..rail3` if they share it."""
    return rail_names[0] if len(rail_names) == 1 else f"{rail_names[0]}..{rail_names[-1]}"


def format_resource(resource: str) -> str:
    """Return the name of a resource for messages, which replaces the internal name of a rail that comes as claims."""
    return "NIC" if resource.startswith(f"{names.CLAIMS_DOMAIN}/") else resource


def fill_resources(name: str, fabric: model.Fabric, networks: Networks) -> model.Fabric:
    """Return the fabric with a resource for each rail: that of its network, or an internal one for a rail in claims."""
    if fabric.claims is not None:
        named = [msgspec.structs.replace(rail, resource=names.name_resource(name, rail.name)) for rail in fabric.rails]
        return msgspec.structs.replace(fabric, rails=tuple(named))
    if all(rail.resource or not rail.network for rail in fabric.rails):
        return fabric
    resolved = [compiled.resolve_rail(rail).with_resource(networks) for rail in fabric.rails]
    rails = tuple([msgspec.structs.replace(row.rail, resource=row.resource) for row in resolved])
    return msgspec.structs.replace(fabric, rails=rails)


def find_needs(pod: views.Pod, requests: resources.Amounts, fabric: model.Fabric) -> tuple[Need, ...]:
    """Return the devices that the pod needs from each pool of its fabric, in rail order.

    Its resource requests take precedence over its rails. Rails without a resource are left out, and so are claims for
    NICs of any rail.
    """
    if needs := find_requested_devices(requests, fabric.rails):
        return needs
    if fabric.claims is not None and requests.get(objects.IMPLICIT_RESOURCE_PREFIX + fabric.claims.device_class, 0) > 0:
        return ()
    selected = find_rails(pod, [rail.name for rail in fabric.rails])
    return tuple(
        Need(rails=own, resource=resource, amount=fabric.count_devices(len(own)) * resources.UNIT)
        for resource, rails in group_by_resource(fabric.rails).items()
        if (own := tuple(rail for rail in rails if rail in selected))
    )


def find_rails_without_resource(pod: views.Pod, fabric: model.Fabric) -> tuple[str, ...]:
    """Return the rails of the pod that have no resource, in rail order."""
    uncounted = [rail.name for rail in fabric.rails if not rail.resource]
    if not uncounted or fabric.transport is model.Transport.TCP:
        return ()
    selected = find_rails(pod, [rail.name for rail in fabric.rails])
    return tuple([name for name in uncounted if name in selected])


def find_requested_devices(requests: resources.Amounts, rails: Iterable[model.Rail]) -> tuple[Need, ...]:
    """Return the devices that the resource requests of a pod need from each pool. Its annotations are ignored."""
    return tuple(
        Need(rails=own, resource=resource, amount=requests[resource])
        for resource, own in group_by_resource(rails).items()
        if requests.get(resource, 0) > 0
    )


def group_by_resource(rails: Iterable[model.Rail]) -> Mapping[str, tuple[str, ...]]:
    """Return the names of the rails of each resource, in rail order. Rails without a resource are left out."""
    pools: dict[str, tuple[str, ...]] = {}
    for rail in rails:
        if rail.resource:
            pools[rail.resource] = (*pools.get(rail.resource, ()), rail.name)
    return pools


# --- the record of a gang's topology: an annotation of its pod templates, and so of its pods -----------


class TopologyRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """The content of the annotation `topology`. `reason` explains why a topology was or was not written."""

    scheduler: str = ""
    mode: str = ""
    level: str = ""  # key that the fields name
    fields: tuple[str, ...] = ()  # JSON pointers of the workload's fields that were written
    annotations: tuple[str, ...] = ()  # keys that were written to this template
    reason: Reason | None = None


_NO_TOPOLOGY = TopologyRecord()
_decode_topology = msgspec.json.Decoder(TopologyRecord).decode


def read_topology(pod: views.Pod) -> TopologyRecord:
    """Return the record of a pod or pod template; an empty one if it is absent or invalid."""
    text = pod.metadata.annotations.get(names.TOPOLOGY)
    try:
        return _decode_topology(text) if text else _NO_TOPOLOGY
    except (msgspec.MsgspecError, RecursionError):
        return _NO_TOPOLOGY
