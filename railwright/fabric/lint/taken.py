"""What ranks really get: the numbers NCCL takes, what the policy itself says of a variable, the fabric they are on.

Owns readings that several rules share. Refuses to know any rule, and how settings are written (`settings`).
"""

from collections.abc import Iterator

import msgspec

from railwright.fabric.lint import hardware, model
from railwright.fabric.nccl import derive, integers
from railwright.fabric.policy import model as policies

WITH_GIDS = frozenset({policies.Transport.ROCE, policies.Transport.ERDMA, policies.Transport.PVRDMA})
VERBS = WITH_GIDS | {policies.Transport.INFINIBAND}  # what NCCL's own IB network carries
_EFA_RESOURCE = "vpc.amazonaws.com/efa"  # aws-efa-k8s-device-plugin
_DEFAULTS = {policies.Transport.EFA: "AWS Libfabric", policies.Transport.TCP: "Socket"}


def number(ranks: model.Ranks, name: str) -> int | None:
    """The number NCCL takes for a name; None where it is unset, not known, or refused so that a default stays."""
    value = ranks.value(name)
    if value is None:
        return None
    read = integers.parse(value, ranks.nccl)
    return None if isinstance(read, integers.NoValue) else read


def numbers(ranks: model.Ranks, *names: str) -> Iterator[tuple[model.Setting, int]]:
    """Of these names, those with a number, in that order."""
    for name in names:
        setting, read = ranks.setting(name), number(ranks, name)
        if setting is not None and read is not None:
            yield setting, read


def on(ranks: model.Ranks, name: str) -> bool:
    """True for a switch that is known to be on: any number but 0."""
    return number(ranks, name) not in {None, 0}


def absent(ranks: model.Ranks, name: str) -> bool:
    """True where nobody set a name; what comes from elsewhere is set."""
    return ranks.setting(name) is None


def older(ranks: model.Ranks, *release: int) -> bool:
    """True where the image's NCCL is known to be older than a release."""
    return ranks.nccl is not None and ranks.nccl < release


def on_efa(ranks: model.Ranks) -> bool:
    """True on AWS EFA: by the policy, without one by the device."""
    transport = ranks.site.transport
    return transport is policies.Transport.EFA or (transport is None and _EFA_RESOURCE in ranks.devices)


def rdma_requested(ranks: model.Ranks) -> bool:
    """True where the container takes RDMA devices on a fabric that is not held to TCP on purpose."""
    return ranks.site.transport is not policies.Transport.TCP and bool(hardware.rdma(ranks))


def network(ranks: model.Ranks) -> str:
    """What NCCL_NET is called on the ranks' fabric."""
    transport = policies.Transport.EFA if on_efa(ranks) else ranks.site.transport
    return "IB" if transport is None else _DEFAULTS.get(transport, "IB")


def of_the_policy(ranks: model.Ranks, name: str) -> bool:
    """True where a value is the one that the operator's policy gives the variable: it is believed."""
    fabric, value = ranks.site.fabric, ranks.value(name)
    if fabric is None or value is None:
        return False
    return value in (fabric.env.get(name), _derived(fabric, ranks.site.primary).get(name))


def _derived(fabric: policies.Fabric, primary: str) -> dict[str, str]:
    """What follows from the facts, also where the operator leaves it to others to set it."""
    facts = msgspec.structs.replace(fabric, nccl=msgspec.structs.replace(fabric.nccl, derive=True))
    found = derive.derive(facts, facts.rails, None, primary, False)
    return {variable.name: variable.value for variable in found}
