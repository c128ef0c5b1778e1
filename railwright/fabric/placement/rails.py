"""Determines the rails that a pod needs, and the number of devices of each device pool.

The first match counts: resource requests, injection record, `rails` annotation, policy (docs/interface.md 7.2).
"""

from collections.abc import Mapping, Sequence

import msgspec

from railwright.fabric import names, resources, views
from railwright.fabric.policy import model


class Need(msgspec.Struct, frozen=True):
    """The devices that a pod needs from one pool: those of one rail, or of several rails that share the resource."""

    rails: tuple[str, ...]
    resource: str
    amount: int  # milli-units

    @property
    def label(self) -> str:
        """Return the display name of the rails: `rail0` or `rail0..rail3`."""
        return self.rails[0] if len(self.rails) == 1 else f"{self.rails[0]}..{self.rails[-1]}"


class _Record(msgspec.Struct, frozen=True):
    """The fields of the injection record that placement uses."""

    fabric: str = ""
    rails: list[str] | None = None
    policy: str = ""


_LONGEST_DIGEST = 80  # sha256: and 64 digits are 71
_NO_RECORD = _Record()
_decode_record = msgspec.json.Decoder(_Record).decode


def record_of(pod: views.Pod) -> tuple[str, tuple[str, ...] | None]:
    """Return (fabric, rails) of the pod's injection record; ("", None) if it is absent or invalid.

    Rails can be (): launchers and some other roles get none.
    """
    record = _record(pod)
    return record.fabric, None if record.rails is None else tuple(record.rails)


def policy_of(pod: views.Pod) -> str:
    """Return the digest of the policy a pod was admitted under; "" if its record is absent, invalid or too long."""
    policy = _record(pod).policy
    return policy if len(policy) <= _LONGEST_DIGEST else ""


def _record(pod: views.Pod) -> _Record:
    text = pod.metadata.annotations.get(names.INJECTION)
    try:
        return _decode_record(text) if text else _NO_RECORD
    except msgspec.MsgspecError:
        return _NO_RECORD


def fabric_of(pod: views.Pod, document: model.FabricPolicy) -> tuple[str, model.Fabric | None]:
    """Return (name, fabric) a pod opted in to; ("", None) if it did not, or the policy does not define the fabric.

    Without a label the injection record counts: the webhook writes it for pods that their namespace opted in.
    """
    name = pod.metadata.labels.get(names.FABRIC, "")
    if name == names.FABRIC_NONE:
        return "", None
    if name == names.FABRIC_DEFAULT:
        name = document.default_fabric or ""
    name = name or record_of(pod)[0]
    fabric = document.fabrics.get(name)
    return (name, fabric) if fabric is not None else ("", None)


def counted(fabric: model.Fabric, pools: Mapping[tuple[str, str], str]) -> model.Fabric:
    """Fill in the resource of each rail that has only a network.

    `pools` maps (namespace, name) of a NetworkAttachmentDefinition to its resource. The policy takes precedence.
    """
    if all(rail.resource or not rail.network for rail in fabric.rails):
        return fabric
    return msgspec.structs.replace(fabric, rails=tuple(_counted(rail, pools) for rail in fabric.rails))


def _counted(rail: model.Rail, pools: Mapping[tuple[str, str], str]) -> model.Rail:
    if rail.resource or not rail.network:
        return rail
    namespace, _, name = rail.network.partition("/")
    return msgspec.structs.replace(rail, resource=pools.get((namespace, name)))


def needs_of(pod: views.Pod, requests: resources.Amounts, fabric: model.Fabric) -> tuple[Need, ...]:
    """Return what the pod needs of each pool of its fabric, in rail order. Rails without a resource are left out."""
    if asked := requested(requests, fabric.rails):
        return asked
    pools = _pools(fabric.rails)
    wanted = _named_rails(pod, fabric.rails)
    each = fabric.devices_per_rail * resources.UNIT
    return tuple(
        Need(rails=chosen, resource=resource, amount=each * len(chosen))
        for resource, rails in pools.items()
        if (chosen := tuple(rail for rail in rails if rail in wanted))
    )


def requested(requests: resources.Amounts, rails: Sequence[model.Rail]) -> tuple[Need, ...]:
    """Return what the resource requests alone need of each pool."""
    return tuple(
        Need(rails=own, resource=resource, amount=requests[resource])
        for resource, own in _pools(rails).items()
        if requests.get(resource, 0) > 0
    )


def _pools(rails: Sequence[model.Rail]) -> Mapping[str, tuple[str, ...]]:
    pools: dict[str, tuple[str, ...]] = {}
    for rail in rails:
        if rail.resource:
            pools[rail.resource] = (*pools.get(rail.resource, ()), rail.name)
    return pools


def _named_rails(pod: views.Pod, rails: Sequence[model.Rail]) -> frozenset[str]:
    known = [rail.name for rail in rails]
    recorded = record_of(pod)[1]
    if recorded is not None and (not recorded or not set(recorded).isdisjoint(known)):
        return frozenset(recorded)
    return frozenset(select(pod.metadata.annotations.get(names.RAILS, ""), known) or known)


def select(text: str, known: Sequence[str]) -> tuple[str, ...]:
    """Return the rails that an annotation value selects, in the fabric's order; () if it is empty or invalid.

    An invalid annotation filters no node, because the webhook has already rejected it.
    """
    text = text.strip()
    if text.isascii() and text.isdigit():
        return tuple(known[: int(text[:4])])
    chosen: set[str] = set()
    for item in (part.strip() for part in text.split(",") if part.strip()):
        if item in known:
            chosen.add(item)
            continue
        ends = [index for index, name in enumerate(known) if item.startswith(f"{name}-")]
        for start in ends:
            end = item[len(known[start]) + 1 :]
            if end in known:
                chosen.update(known[start : known.index(end) + 1])
    return tuple(name for name in known if name in chosen)
