"""Which rails a pod gets: all, those its annotation names, or its share; less those it opted out of.

Owns the annotation's grammar (ruling 1), `railsPerPod` and the meaning of "0" (ruling 13). Resolves the resource of a
rail, by the policy or by the network's own annotation.
"""

from collections.abc import Sequence

import msgspec

from railwright.fabric import names, views
from railwright.fabric.injection import accelerators, facts, model
from railwright.fabric.policy import model as policies


class Chosen(msgspec.Struct, frozen=True):
    """A rail of this pod with what was looked up for it."""

    rail: policies.Rail
    resource: str | None
    network: tuple[str, str] | None  # namespace, name

    @property
    def name(self) -> str:
        """The rail's name."""
        return self.rail.name


def choose(
    pod: views.Pod, fabric: policies.Fabric, document: policies.FabricPolicy, known: facts.Facts
) -> tuple[Chosen, ...]:
    """The pod's rails in the fabric's order. Raises RefusedError."""
    if fabric.transport is policies.Transport.TCP:
        return ()
    written = pod.metadata.annotations.get(names.RAILS)
    if written is not None:
        rails = _asked(written, fabric.rails)
    elif fabric.rails_per_pod == "proportional":
        rails = _share(pod, fabric, document)
    else:
        rails = fabric.rails
    found = (_resolved(rail, known) for rail in rails)
    return tuple(each for each in found if each.resource is None or not opted_out(pod, each.resource))


def opted_out(pod: views.Pod, resource: str) -> bool:
    """True where the pod names a resource and asks for none of it."""
    said = [container for container in pod.spec.containers if accelerators.names(container, resource)]
    return bool(said) and not any(accelerators.amount(container, resource) for container in said)


def network_of(rail: policies.Rail) -> tuple[str, str] | None:
    """(namespace, name) of a rail's NetworkAttachmentDefinition."""
    if rail.network is None:
        return None
    namespace, _, name = rail.network.partition("/")
    return (namespace, name)


def _resolved(rail: policies.Rail, known: facts.Facts) -> Chosen:
    network = network_of(rail)
    resource = rail.resource
    if resource is None and network is not None and known.networks is not None:
        resource = known.networks.get(network)
    return Chosen(rail, resource, network)


def _share(pod: views.Pod, fabric: policies.Fabric, document: policies.FabricPolicy) -> tuple[policies.Rail, ...]:
    """ceil(GPUs x rails / GPUs per node), at least one: the first ones, so that a whole gang has the same."""
    wanted = sum(accelerators.count(container, document.accelerators) for container in pod.spec.containers)
    share = -(-wanted * len(fabric.rails) // (fabric.gpus_per_node or 1))
    return fabric.rails[: max(1, min(share, len(fabric.rails)))]


def _asked(written: str, rails: Sequence[policies.Rail]) -> tuple[policies.Rail, ...]:
    text = written.strip()
    if not text:
        raise model.RefusedError(
            "rails",
            f"annotation {names.RAILS} is empty; the fabric has {model.listed(rail.name for rail in rails)}: write a "
            "count, names or a range such as rail0-rail3, or remove it for all",
        )
    if text.isascii() and text.isdigit():
        return _first(text, written, rails)
    numbers = {rail.name: number for number, rail in enumerate(rails)}
    wanted: set[int] = set()
    for item in text.split(","):
        first, last = _span(item.strip(), written, numbers)
        if last < first:
            raise _refused(written, f"{model.quoted(item.strip())} is reversed; write the earlier rail first")
        wanted.update(range(first, last + 1))
    return tuple(rails[number] for number in sorted(wanted))


def _first(text: str, written: str, rails: Sequence[policies.Rail]) -> tuple[policies.Rail, ...]:
    count = int(text[:9])  # nine digits are more rails than any fabric has
    if not 0 < count <= len(rails):
        raise _refused(written, f"the fabric has {len(rails)} rails; ask for 1 to {len(rails)}, or remove it for all")
    return tuple(rails[:count])


def _span(item: str, written: str, numbers: dict[str, int]) -> tuple[int, int]:
    """First and last number of a name or of a range; names may hold '-' themselves, so each name is tried."""
    if item in numbers:
        return numbers[item], numbers[item]
    for first, number in numbers.items():
        if item.startswith(f"{first}-") and (last := item[len(first) + 1 :]) in numbers:
            return number, numbers[last]
    raise _refused(
        written,
        f"{model.quoted(item)} is not a rail or a range; the fabric has {model.listed(numbers)}; "
        "write a count, names or a range such as rail0-rail3",
    )


def _refused(written: str, problem: str) -> model.RefusedError:
    return model.RefusedError("rails", f"annotation {names.RAILS} {model.quoted(written)}: {problem}")
