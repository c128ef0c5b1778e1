"""Values of settings as NCCL reads them, what the ranks' fabric and policy say of them, and their form in messages."""

import msgspec

from railwright.fabric import text as texts
from railwright.fabric.lint import rule_types
from railwright.fabric.nccl import derive, integers
from railwright.fabric.policy import model as policies

WITH_GIDS = frozenset({policies.Transport.ROCE, policies.Transport.ERDMA, policies.Transport.PVRDMA})
_MAX_QUOTED = 60  # characters of a user's text in a message
EFA_RESOURCE = "vpc.amazonaws.com/efa"  # aws-efa-k8s-device-plugin
_WITHOUT_RDMA = frozenset({policies.Transport.TCP, policies.Transport.PLUGIN})
_DEFAULTS = {policies.Transport.EFA: "AWS Libfabric", policies.Transport.TCP: "Socket"}


def parse_number(setting: rule_types.Setting | None, ranks: rule_types.RankContext) -> int | None:
    """Return the number that the ranks' NCCL reads from a setting, or None if it is unset, unknown or invalid."""
    if setting is None or setting.value is None:
        return None
    number = integers.parse(setting.value, ranks.nccl)
    return None if isinstance(number, integers.NoValue) else number


def read_number(ranks: rule_types.RankContext, name: str) -> int | None:
    """Return the number that NCCL reads for a name, or None if it is unset, unknown or invalid."""
    return parse_number(ranks.get_setting(name), ranks)


def is_on(ranks: rule_types.RankContext, name: str) -> bool:
    """True if a switch is known to be on, which is any number except 0."""
    return read_number(ranks, name) not in {None, 0}


def is_older(ranks: rule_types.RankContext, *release: int) -> bool:
    """True if the image's NCCL is known to be older than a release."""
    return ranks.nccl is not None and ranks.nccl < release


def is_on_efa(ranks: rule_types.RankContext) -> bool:
    """True on AWS EFA, by the policy or, without a policy, by the requested device."""
    transport = ranks.fabric_context.transport
    return transport is policies.Transport.EFA or (transport is None and EFA_RESOURCE in ranks.devices)


def is_rdma_requested(ranks: rule_types.RankContext) -> bool:
    """True if the container requests RDMA devices on a fabric that the policy does not restrict to TCP."""
    return ranks.fabric_context.transport not in _WITHOUT_RDMA and bool(ranks.rdma_devices)


def choose_network(ranks: rule_types.RankContext) -> str:
    """Return the value of NCCL_NET for the ranks' fabric."""
    transport = policies.Transport.EFA if is_on_efa(ranks) else ranks.fabric_context.transport
    fabric = ranks.fabric_context.fabric
    if fabric is not None and fabric.nccl.plugin.network:
        return fabric.nccl.plugin.network
    return "IB" if transport is None else _DEFAULTS.get(transport, "IB")


def is_policy_value(setting: rule_types.Setting, ranks: rule_types.RankContext) -> bool:
    """True if a variable has the value that the operator's policy gives it, which rules then accept."""
    fabric = ranks.fabric_context.fabric
    if fabric is None or setting.value is None:
        return False
    derived = _derive_variables(fabric, ranks.fabric_context.primary)
    return setting.value in (fabric.env.get(setting.name), derived.get(setting.name))


def _derive_variables(fabric: policies.Fabric, primary: str) -> dict[str, str]:
    """Return the derived variables of a fabric, also if the policy turns derivation off."""
    deriving_fabric = msgspec.structs.replace(fabric, nccl=msgspec.structs.replace(fabric.nccl, derive=True))
    case = derive.Case(deriving_fabric, deriving_fabric.rails, None, primary, is_foreign=False)
    return {variable.name: variable.value for variable in derive.derive(case)}


def quote(text: str) -> str:
    """Return a user's text for a message, escaped and truncated."""
    short = texts.abbreviate(text, _MAX_QUOTED)
    return (
        short if short.isprintable() else "".join(char if char.isprintable() else ascii(char)[1:-1] for char in short)
    )


def format_setting(setting: rule_types.Setting) -> str:
    """Return NAME=VALUE for a message. The value is quoted if it is empty or contains blanks or quotes."""
    if setting.value is None:
        return quote(setting.name)
    value = quote(setting.value)
    is_bare = value and value == value.strip(rule_types.SURROUNDING) and " " not in value
    return f"{quote(setting.name)}={value if is_bare else repr(value)}"
