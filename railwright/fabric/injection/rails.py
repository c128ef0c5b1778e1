"""Selects the rails of a pod: all, those in its annotation, or its share. Rails that the pod opted out of are removed.

The rules are in docs/interface.md 1.3 and 3.2. The resource of a rail comes from the policy, otherwise from the
annotation of its network.
"""

from collections.abc import Sequence

import msgspec

from railwright.fabric import names, views
from railwright.fabric.injection import accelerators, facts, model
from railwright.fabric.policy import model as policies


class Chosen(msgspec.Struct, frozen=True):
    """A rail of the pod with its resource and network."""

    rail: policies.Rail
    resource: str | None
    network: tuple[str, str] | None  # namespace, name

    @property
    def name(self) -> str:
        """Return the rail's name."""
        return self.rail.name


def select_rails(
    pod: views.Pod, fabric: policies.Fabric, document: policies.FabricPolicy, cluster: facts.Facts
) -> tuple[Chosen, ...]:
    """Return the pod's rails in the fabric's order. Raises RefusedError."""
    if fabric.transport is policies.Transport.TCP:
        return ()
    annotation = pod.metadata.annotations.get(names.RAILS)
    if annotation is not None:
        policy_rails = _parse_annotation(annotation, fabric.rails)
    elif fabric.rails_per_pod == "proportional":
        policy_rails = _select_proportional(pod, fabric, document)
    else:
        policy_rails = fabric.rails
    resolved = (_resolve_rail(rail, cluster) for rail in policy_rails)
    return tuple(rail for rail in resolved if rail.resource is None or not is_opted_out(pod, rail.resource))


def is_opted_out(pod: views.Pod, resource: str) -> bool:
    """True if the pod names the resource and requests none of it."""
    containers = [container for container in pod.spec.containers if accelerators.mentions(container, resource)]
    return bool(containers) and not any(accelerators.read_amount(container, resource) for container in containers)


def network_of(rail: policies.Rail) -> tuple[str, str] | None:
    """Return (namespace, name) of a rail's NetworkAttachmentDefinition."""
    if rail.network is None:
        return None
    namespace, _, name = rail.network.partition("/")
    return (namespace, name)


def _resolve_rail(rail: policies.Rail, cluster: facts.Facts) -> Chosen:
    network = network_of(rail)
    resource = rail.resource
    if resource is None and network is not None and cluster.networks is not None:
        resource = cluster.networks.get(network)
    return Chosen(rail, resource, network)


def _select_proportional(
    pod: views.Pod, fabric: policies.Fabric, document: policies.FabricPolicy
) -> tuple[policies.Rail, ...]:
    """Return ceil(GPUs x rails / GPUs per node) rails, at least one.

    They are the first rails of the fabric, so that all pods of a gang have the same.
    """
    accelerator_count = sum(accelerators.count(container, document.accelerators) for container in pod.spec.containers)
    share = -(-accelerator_count * len(fabric.rails) // (fabric.gpus_per_node or 1))
    return fabric.rails[: max(1, min(share, len(fabric.rails)))]


def _parse_annotation(annotation: str, rails: Sequence[policies.Rail]) -> tuple[policies.Rail, ...]:
    text = annotation.strip()
    if not text:
        raise model.RefusedError(
            "rails",
            f"annotation {names.RAILS} is empty; the fabric has {model.listed(rail.name for rail in rails)}: write a "
            "count, names or a range such as rail0-rail3, or remove it for all",
        )
    if text.isascii() and text.isdigit():
        return _select_first(text, annotation, rails)
    index_by_name = {rail.name: index for index, rail in enumerate(rails)}
    selected: set[int] = set()
    for item in text.split(","):
        first, last = _parse_range(item.strip(), annotation, index_by_name)
        if last < first:
            raise _reject(annotation, f"{model.quoted(item.strip())} is reversed; write the earlier rail first")
        selected.update(range(first, last + 1))
    return tuple(rails[index] for index in sorted(selected))


def _select_first(text: str, annotation: str, rails: Sequence[policies.Rail]) -> tuple[policies.Rail, ...]:
    count = int(text[:9])  # bounds the work; no fabric has as many rails
    if not 0 < count <= len(rails):
        raise _reject(annotation, f"the fabric has {len(rails)} rails; ask for 1 to {len(rails)}, or remove it for all")
    return tuple(rails[:count])


def _parse_range(item: str, annotation: str, index_by_name: dict[str, int]) -> tuple[int, int]:
    """Return first and last index of a name or a range. Rail names may contain '-', so each name is tried."""
    if item in index_by_name:
        return index_by_name[item], index_by_name[item]
    for first, index in index_by_name.items():
        if item.startswith(f"{first}-") and (last := item[len(first) + 1 :]) in index_by_name:
            return index, index_by_name[last]
    raise _reject(
        annotation,
        f"{model.quoted(item)} is not a rail or a range; the fabric has {model.listed(index_by_name)}; "
        "write a count, names or a range such as rail0-rail3",
    )


def _reject(annotation: str, problem: str) -> model.RefusedError:
    return model.RefusedError("rails", f"annotation {names.RAILS} {model.quoted(annotation)}: {problem}")
