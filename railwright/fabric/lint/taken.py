"""Effective values of the ranks' variables, and properties of their fabric, for several rules."""

from collections.abc import Iterator

import msgspec

from railwright.fabric.lint import hardware, model
from railwright.fabric.nccl import derive, integers
from railwright.fabric.policy import model as policies

WITH_GIDS = frozenset({policies.Transport.ROCE, policies.Transport.ERDMA, policies.Transport.PVRDMA})
VERBS = WITH_GIDS | {policies.Transport.INFINIBAND}  # transports of NCCL's own IB network
_EFA_RESOURCE = "vpc.amazonaws.com/efa"  # aws-efa-k8s-device-plugin
_DEFAULTS = {policies.Transport.EFA: "AWS Libfabric", policies.Transport.TCP: "Socket"}


def number(ranks: model.Ranks, name: str) -> int | None:
    """Return the number that NCCL reads for a name, or None if it is unset, unknown or invalid."""
    value = ranks.value(name)
    if value is None:
        return None
    result = integers.parse(value, ranks.nccl)
    return None if isinstance(result, integers.NoValue) else result


def numbers(ranks: model.Ranks, *names: str) -> Iterator[tuple[model.Setting, int]]:
    """Yield the settings of `names` that have a number, with the number, in that order."""
    for name in names:
        setting, value = ranks.setting(name), number(ranks, name)
        if setting is not None and value is not None:
            yield setting, value


def is_on(ranks: model.Ranks, name: str) -> bool:
    """True if a switch is known to be on, which is any number except 0."""
    return number(ranks, name) not in {None, 0}


def is_unset(ranks: model.Ranks, name: str) -> bool:
    """True if a name is not set. A name with a value from another source is set."""
    return ranks.setting(name) is None


def is_older(ranks: model.Ranks, *release: int) -> bool:
    """True if the image's NCCL is known to be older than a release."""
    return ranks.nccl is not None and ranks.nccl < release


def on_efa(ranks: model.Ranks) -> bool:
    """True on AWS EFA, by the policy or, without a policy, by the requested device."""
    transport = ranks.site.transport
    return transport is policies.Transport.EFA or (transport is None and _EFA_RESOURCE in ranks.devices)


def rdma_requested(ranks: model.Ranks) -> bool:
    """True if the container requests RDMA devices on a fabric that the policy does not restrict to TCP."""
    return ranks.site.transport is not policies.Transport.TCP and bool(hardware.rdma(ranks))


def network(ranks: model.Ranks) -> str:
    """Return the value of NCCL_NET for the ranks' fabric."""
    transport = policies.Transport.EFA if on_efa(ranks) else ranks.site.transport
    return "IB" if transport is None else _DEFAULTS.get(transport, "IB")


def is_policy_value(ranks: model.Ranks, name: str) -> bool:
    """True if a variable has the value that the operator's policy gives it, which rules then accept."""
    fabric, value = ranks.site.fabric, ranks.value(name)
    if fabric is None or value is None:
        return False
    return value in (fabric.env.get(name), _derive_variables(fabric, ranks.site.primary).get(name))


def _derive_variables(fabric: policies.Fabric, primary: str) -> dict[str, str]:
    """Return the derived variables of a fabric, also if the policy turns derivation off."""
    deriving_fabric = msgspec.structs.replace(fabric, nccl=msgspec.structs.replace(fabric.nccl, derive=True))
    variables = derive.derive(deriving_fabric, deriving_fabric.rails, None, primary, False)
    return {variable.name: variable.value for variable in variables}
