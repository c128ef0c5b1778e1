"""Effective values of the ranks' variables, and properties of their fabric, for several rules."""

from collections.abc import Iterator

import msgspec

from railwright.fabric.lint import hardware, rule_types
from railwright.fabric.nccl import derive, integers
from railwright.fabric.policy import model as policies

WITH_GIDS = frozenset({policies.Transport.ROCE, policies.Transport.ERDMA, policies.Transport.PVRDMA})
VERBS = WITH_GIDS | {policies.Transport.INFINIBAND}  # transports of NCCL's own IB network
_EFA_RESOURCE = "vpc.amazonaws.com/efa"  # aws-efa-k8s-device-plugin
_DEFAULTS = {policies.Transport.EFA: "AWS Libfabric", policies.Transport.TCP: "Socket"}


def read_number(ctx: rule_types.RankContext, name: str) -> int | None:
    """Return the number that NCCL reads for a name, or None if it is unset, unknown or invalid."""
    value = ctx.get_value(name)
    if value is None:
        return None
    result = integers.parse(value, ctx.nccl)
    return None if isinstance(result, integers.NoValue) else result


def list_numbers(ctx: rule_types.RankContext, *names: str) -> Iterator[tuple[rule_types.Setting, int]]:
    """Yield the settings of `names` that have a number, with the number, in that order."""
    for name in names:
        setting, value = ctx.get_setting(name), read_number(ctx, name)
        if setting is not None and value is not None:
            yield setting, value


def is_on(ctx: rule_types.RankContext, name: str) -> bool:
    """True if a switch is known to be on, which is any number except 0."""
    return read_number(ctx, name) not in {None, 0}


def is_unset(ctx: rule_types.RankContext, name: str) -> bool:
    """True if a name is not set. A name with a value from another source is set."""
    return ctx.get_setting(name) is None


def is_older(ctx: rule_types.RankContext, *release: int) -> bool:
    """True if the image's NCCL is known to be older than a release."""
    return ctx.nccl is not None and ctx.nccl < release


def is_on_efa(ctx: rule_types.RankContext) -> bool:
    """True on AWS EFA, by the policy or, without a policy, by the requested device."""
    transport = ctx.fabric_context.transport
    return transport is policies.Transport.EFA or (transport is None and _EFA_RESOURCE in ctx.devices)


def is_rdma_requested(ctx: rule_types.RankContext) -> bool:
    """True if the container requests RDMA devices on a fabric that the policy does not restrict to TCP."""
    return ctx.fabric_context.transport is not policies.Transport.TCP and bool(hardware.find_rdma_devices(ctx))


def choose_network(ctx: rule_types.RankContext) -> str:
    """Return the value of NCCL_NET for the ranks' fabric."""
    transport = policies.Transport.EFA if is_on_efa(ctx) else ctx.fabric_context.transport
    return "IB" if transport is None else _DEFAULTS.get(transport, "IB")


def is_policy_value(ctx: rule_types.RankContext, name: str) -> bool:
    """True if a variable has the value that the operator's policy gives it, which rules then accept."""
    fabric, value = ctx.fabric_context.fabric, ctx.get_value(name)
    if fabric is None or value is None:
        return False
    return value in (fabric.env.get(name), _derive_variables(fabric, ctx.fabric_context.primary).get(name))


def _derive_variables(fabric: policies.Fabric, primary: str) -> dict[str, str]:
    """Return the derived variables of a fabric, also if the policy turns derivation off."""
    deriving_fabric = msgspec.structs.replace(fabric, nccl=msgspec.structs.replace(fabric.nccl, derive=True))
    variables = derive.derive(deriving_fabric, deriving_fabric.rails, None, primary, False)
    return {variable.name: variable.value for variable in variables}
