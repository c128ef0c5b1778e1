"""N61: lists of devices that leave out rails of the pod, for each library that reads one."""

from collections.abc import Callable, Iterator, Mapping

from railwright.fabric.lint import effective_values, hardware, rule_types, settings
from railwright.fabric.nccl import lists
from railwright.fabric.policy import model as policies

_MAX_NAMED = 8  # devices in a message
_UNREAD = frozenset({policies.Transport.EFA, policies.Transport.TCP})  # no library opens rails by these names there
_NCCL = "NCCL_IB_HCA"
_NVSHMEM_LIST, _NVSHMEM_MAPPING = "NVSHMEM_HCA_LIST", "NVSHMEM_HCA_PE_MAPPING"


def _parse_nccl(value: str) -> lists.NameList | None:
    name_list = lists.parse(value)
    return name_list if name_list.entries else None


def _parse_ucx(value: str) -> lists.NameList | None:
    """Return the devices of a list of UCX: exact names with a port. Patterns and `all` are not read."""
    return None if value == "all" or set(value) & set("^*?[") else lists.parse(f"={value}")


def _parse_nvshmem(value: str) -> lists.NameList | None:
    """Return the devices of a list of NVSHMEM: exact names, `^` in front excludes; a mapping adds a count."""
    mark = "^" if value.startswith("^") else ""
    return lists.parse(f"{mark}={value.removeprefix('^')}")


# UCX: documentation of UCX_NET_DEVICES. NVSHMEM: src/modules/transport/ibrc/ibrc.cpp.
_PARSERS: Mapping[str, Callable[[str], lists.NameList | None]] = {
    _NCCL: _parse_nccl,
    "UCX_NET_DEVICES": _parse_ucx,
    _NVSHMEM_LIST: _parse_nvshmem,
    _NVSHMEM_MAPPING: _parse_nvshmem,
}


def _check(ctx: rule_types.RankContext) -> Iterator[rule_types.Violation]:
    if ctx.fabric_context.transport in _UNREAD or effective_values.is_on_efa(ctx):
        return
    for name, parse in _PARSERS.items():
        setting = ctx.get_setting(name)
        if setting is None or not setting.value or effective_values.is_policy_value(ctx, name):
            continue
        if name == _NVSHMEM_MAPPING and not effective_values.is_unset(ctx, _NVSHMEM_LIST):
            continue  # NVSHMEM ignores the mapping beside the list
        name_list = parse(settings.strip_quotes(setting.value))
        problem = None if name_list is None else _find_problem(name_list, ctx)
        if problem is not None:
            yield settings.build_violation(setting, problem)


def _find_problem(name_list: lists.NameList, ctx: rule_types.RankContext) -> str | None:
    for devices in ctx.fabric_context.devices or ():
        left_out = [device for device in devices if not name_list.selects(device)]
        if left_out and len(left_out) < len(devices):
            names = ", ".join(left_out[:_MAX_NAMED]) + (", ..." if len(left_out) > _MAX_NAMED else "")
            return _describe(len(devices) - len(left_out), len(devices), f" and leaves out {names}")
    if ctx.fabric_context.devices is not None:
        return None
    total, named = _count_rails(ctx), _count_named(name_list)
    return _describe(named, total, "") if 0 < named < total else None


def _describe(selected: int, total: int, left_out: str) -> str:
    return (
        f"selects {selected} of the pod's {total} rails{left_out}: the others carry nothing, and no log says so; "
        "remove it, or request fewer rails by the annotation railwright.io/rails"
    )


def _count_rails(ctx: rule_types.RankContext) -> int:
    """Return the number of rails whose device names are not known: those of the policy, or requested one by one."""
    if ctx.fabric_context.rails:
        return len(ctx.fabric_context.rails)
    if ctx.fabric_context.fabric is not None:
        return 0
    return sum(amount for name, amount in hardware.find_rdma_devices(ctx).items() if hardware.is_exclusive(name))


def _count_named(name_list: lists.NameList) -> int:
    """Return the number of devices that a list of exact names selects at most; 0 if that cannot be told.

    Entries without a number at the end are interfaces, as UCX takes them for TCP.
    """
    names = {entry.name for entry in name_list.entries}
    is_list_of_devices = all(name[-1].isdigit() and not name.startswith(_INTERFACES) for name in names)
    return len(names) if name_list.exact and not name_list.exclude and is_list_of_devices else 0


_INTERFACES = ("eth", "ens", "enp", "eno", "bond", "net", "ib0")

LEFT_OUT_RAILS = rule_types.Rule(
    code="N61",
    name="rails-left-out",
    severity=rule_types.Severity.WARNING,
    title="A list of devices leaves out rails of the pod",
    explanation=(
        "A list that names two of four rails halves the bandwidth in silence: NCCL, UCX and NVSHMEM use what is named "
        "and log nothing about the rest. Without known device names, a list of exact names is compared with the number "
        "of rails, or with the exclusive devices that the container requests. Values of the policy are not reported."
    ),
    source="NVIDIA/nccl src/transport/net_ib/init.cc; UCX, UCX_NET_DEVICES; NVIDIA/nvshmem src/modules/transport/ibrc",
    check=_check,
)

RULES = (LEFT_OUT_RAILS,)
