"""Attaches rails by the annotation of another system than Multus: a list in JSON with an item for each rail.

The user's items stay first and as they are written. A rail for whose interface the user has an item is the user's
(docs/interface.md 3.1).
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from railwright.fabric import text, topology
from railwright.fabric.injection import applied_pod, context, pod_changes
from railwright.fabric.policy import model as policies
from railwright.fabric.reasons import rejections

Item = Mapping[str, Any]

_INTERFACE = "{interface}"
_MAX_ITEMS = 256  # no pod has as many networks, and each is compared with the rails
_decoder = msgspec.json.Decoder(list[msgspec.Raw])
_item_decoder = msgspec.json.Decoder(dict[str, Any])
_encode = msgspec.json.Encoder(order="sorted").encode


def attach(pod: applied_pod.AppliedPod, ctx: context.InjectionContext) -> pod_changes.Contribution:
    """Add the items of the pod's rails that it does not have. Raises RefusedError for a value that is no such list."""
    other = ctx.fabric.network_annotation
    if other is None or not ctx.rails or pod.host_network or "networks" in ctx.options.skip:
        return pod_changes.EMPTY
    entry = f"annotations.{other.key}"
    own = _read_items(other.key, pod.metadata.annotations.get(other.key, "[]"))
    required = (*other.first, *[_fill(other.item, rail.rail) for rail in ctx.rails])
    missing = [*_find_missing(own, required, [key for key, value in other.item.items() if value == _INTERFACE])]
    if not missing:
        return pod_changes.Contribution(entries=(entry,))
    change = pod_changes.SetAnnotation(
        entry=entry,
        reason=f"attaches the pod to the rails of fabric {ctx.fabric_name}",
        key=other.key,
        value=msgspec.json.encode([*own, *missing]).decode(),
    )
    return pod_changes.Contribution((change,), (entry,))


def _read_items(key: str, value: str) -> list[msgspec.Raw]:
    try:
        items = _decoder.decode(value)
        for item in items if len(items) <= _MAX_ITEMS else ():
            _item_decoder.decode(item)
    except (msgspec.MsgspecError, RecursionError):
        message = f"annotation {key} {text.quote(value)} is not a list of JSON objects, to which rails could be added"
        raise rejections.RefusedError("networks", f"{message}; correct or remove it") from None
    if len(items) > _MAX_ITEMS:
        message = f"annotation {key} has {len(items)} items, and the limit is {_MAX_ITEMS}"
        raise rejections.RefusedError("networks", f"{message}; remove some")
    return items


def _fill(value: Any, rail: policies.Rail) -> Any:
    """Return an item of the policy for one rail."""
    if isinstance(value, str):
        return value.replace(topology.RAIL, rail.name).replace(_INTERFACE, rail.interface or "")
    if isinstance(value, dict):
        return {key: _fill(part, rail) for key, part in value.items()}
    return [_fill(part, rail) for part in value] if isinstance(value, list) else value


def _find_missing(
    own: Sequence[msgspec.Raw], required: Sequence[Item], interface_keys: Sequence[str]
) -> Iterator[Item]:
    """Yield the required items that are not among the user's. An equal item counts as often as it occurs."""
    decoded = [_item_decoder.decode(item) for item in own]
    counts = Counter(map(_encode, decoded))
    names_by_key = {key: {name for item in decoded if isinstance(name := item.get(key), str)} for key in interface_keys}
    for item in required:
        encoded = _encode(item)
        if counts[encoded] > 0:
            counts[encoded] -= 1
        elif not any(isinstance(name := item.get(key), str) and name in taken for key, taken in names_by_key.items()):
            yield item
