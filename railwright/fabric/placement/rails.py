"""Which rails a pod wants and what each needs from a node, per device pool.

Owns ruling 20 of the contract: requests first, then the record, then the annotation, then the policy.
"""

from collections.abc import Mapping, Sequence

import msgspec

from railwright.fabric import names, resources, views
from railwright.fabric.policy import model


class Need(msgspec.Struct, frozen=True):
    """Devices a pod needs from one pool: one rail's, or several rails' that share the resource."""

    rails: tuple[str, ...]
    resource: str
    amount: int  # milli-units

    @property
    def label(self) -> str:
        """The rails as shown to people."""
        return self.rails[0] if len(self.rails) == 1 else f"{self.rails[0]}..{self.rails[-1]}"


class _Record(msgspec.Struct, frozen=True):
    """The part of the injection record a placement reads."""

    fabric: str = ""
    rails: list[str] | None = None
    policy: str = ""


_LONGEST_DIGEST = 80  # sha256: and 64 digits are 71
_NO_RECORD = _Record()
_decode_record = msgspec.json.Decoder(_Record).decode


def record_of(pod: views.Pod) -> tuple[str, tuple[str, ...] | None]:
    """(fabric, rails) of the pod's injection record; ("", None) where absent or unreadable.

    No rails at all, (), is an answer too: the pod is a launcher or another role that gets none.
    """
    record = _record(pod)
    return record.fabric, None if record.rails is None else tuple(record.rails)


def policy_of(pod: views.Pod) -> str:
    """The digest of the policy a pod was admitted under; "" where its record is absent, unreadable or absurd."""
    policy = _record(pod).policy
    return policy if len(policy) <= _LONGEST_DIGEST else ""


def _record(pod: views.Pod) -> _Record:
    text = pod.metadata.annotations.get(names.INJECTION)
    try:
        return _decode_record(text) if text else _NO_RECORD
    except msgspec.MsgspecError:
        return _NO_RECORD


def fabric_of(pod: views.Pod, document: model.FabricPolicy) -> tuple[str, model.Fabric | None]:
    """(name, fabric) a pod opted in to; ("", None) where it did not, or names a fabric the policy has not.

    The record counts where there is no label: the webhook writes it for pods their namespace opted in.
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
    """The fabric with the resource of each rail that leaves it to its network (CONTRACT section 2).

    `pools`: (namespace, name) of a NetworkAttachmentDefinition -> the resource it draws on. What the policy says wins.
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
    """What the pod needs of each pool of its fabric, in rail order. Rails without a resource cannot be counted."""
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
    """What resource requests alone ask of each pool."""
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
    """The rails an annotation value chooses, in the fabric's order; () where it is empty or not understood.

    A placement never refuses over the annotation: the webhook has refused a wrong one already.
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
