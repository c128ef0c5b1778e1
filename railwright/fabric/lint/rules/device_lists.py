"""Rules about lists of devices: their grammar, and what they select of the pod's devices and networks."""

import re
from collections.abc import Callable, Iterator, Mapping

import msgspec

from railwright.fabric import text
from railwright.fabric.lint import rule_types
from railwright.fabric.nccl import lists
from railwright.fabric.policy import model as policies

_HCA = "NCCL_IB_HCA"
_LONGEST = {  # characters of a name in the list
    _HCA: lists.MAX_DEVICE_LENGTH,
    "NCCL_SOCKET_IFNAME": lists.MAX_INTERFACE_LENGTH,
    "NCCL_OOB_NET_IFNAME": lists.MAX_INTERFACE_LENGTH,
}
_UNLIMITED = 1 << 20  # entries: only to count them
_NVSHMEM_LIST, _NVSHMEM_MAPPING = "NVSHMEM_HCA_LIST", "NVSHMEM_HCA_PE_MAPPING"
_NVSHMEM_SWITCH = "NVSHMEM_ENABLE_NIC_PE_MAPPING"
_NVSHMEM_ON = ("1", "y", "t")  # NVSHMEM looks at the first letter of a boolean
_UNREAD = frozenset(
    {policies.Transport.EFA, policies.Transport.PLUGIN, policies.Transport.TCP}
)  # no library opens rails by these names there
_INTERFACES = ("eth", "ens", "enp", "eno", "bond", "net", "ib0")  # prefixes of interfaces, which UCX takes for TCP
_LOOK_ALIKE = re.compile(r"(?:m[1i|]x|mxl|mlx[_-])_?([45])", re.IGNORECASE)  # of mlx4 and mlx5
_MAX_NAMED = 8  # devices in a message


def _check_grammar(setting: rule_types.Setting, _: rule_types.RankContext) -> Iterator[str]:
    text, longest = setting.text, _LONGEST[setting.name]
    if not text:
        return
    if any(blank in text for blank in rule_types.BLANKS):
        yield "a blank becomes part of the name behind it, which then matches nothing; remove the blanks"
    if text.startswith("=^"):
        yield "=^ matches nothing: ^ must stand before =; write ^="
        return
    name_list = lists.parse(text)
    if not name_list.entries:
        yield f"has no name: it selects {'nothing' if name_list.exclude else 'everything'}; name what is meant"
    for entry in name_list.entries:
        if entry.name.startswith(("^", "=")):
            name = rule_types.quote(entry.name)
            yield f"{name}: ^ and = count in front of the whole list only, so this entry matches nothing"
        elif len(entry.name) > longest:
            yield f"{rule_types.quote(entry.name)} is longer than {longest} characters and matches nothing; correct it"
        elif entry.port == 0:
            yield f"{rule_types.quote(entry.name)}: its port is no number from 1 on and matches nothing; write name:1"


def _check_prefix(setting: rule_types.Setting, ranks: rule_types.RankContext) -> Iterator[str]:
    name_list = lists.parse(setting.text)
    if ranks.fabric_context.devices is None or name_list.exact:
        return
    devices = dict.fromkeys(device for devices in ranks.fabric_context.devices for device in devices)
    exactly = msgspec.structs.replace(name_list, exact=True, exclude=False)
    for entry in name_list.entries:
        others = [
            device
            for device in devices
            if entry.name[-1].isdigit() and _ends_inside_number(entry.name, device) and not exactly.selects(device)
        ]
        if others:
            verb, mark = ("excludes", "^=") if name_list.exclude else ("takes", "=")
            yield (
                f"{rule_types.quote(entry.name)} is a prefix and also {verb} {', '.join(others)}; "
                f"put {mark} in front of the list for exact names"
            )


def _ends_inside_number(prefix: str, name: str) -> bool:
    """True if the prefix ends inside a number of the name, as mlx5_1 does in mlx5_10: it was meant as a name."""
    return name.startswith(prefix) and name[len(prefix) :][:1].isdigit()


def _check_count(setting: rule_types.Setting, ranks: rule_types.RankContext) -> Iterator[str]:
    if not setting.value:
        return
    name_list = lists.parse(setting.text, _UNLIMITED)
    count = len(name_list.entries)
    if count > lists.MAX_DEVICES:
        yield f"names {count} devices; NCCL reads the first {lists.MAX_DEVICES}: shorten it"
    requested = sum(ranks.rdma_devices.values())
    if ranks.fabric_context.exclusive and not name_list.exclude and 0 < requested < count:
        yield (
            f"names {count} devices, and the container requests {requested}: the others are not in the pod; request "
            f"{count} or name {requested}"
        )


def _check_presence(setting: rule_types.Setting, ranks: rule_types.RankContext) -> Iterator[str]:
    sets = ranks.fabric_context.devices
    if not setting.value or not sets:
        return
    name_list = lists.parse(setting.text)
    unmatched_sets = [devices for devices in sets if not any(map(name_list.selects, devices))]
    if unmatched_sets:
        rails = ", ".join(unmatched_sets[0])
        yield f"selects none of {rails}, the devices of the rails: NCCL would use TCP; name those"
        return
    all_devices = dict.fromkeys(device for devices in sets for device in devices)
    absent = [
        rule_types.quote(entry.name)
        for entry in name_list.entries
        if not (
            entry.name in all_devices
            or (not name_list.exact and any(entry.matches(device, -1, exact=False) for device in all_devices))
        )
    ]
    if absent and not name_list.exclude:
        yield f"{', '.join(absent)}: no rail of the fabric has such a device; the rails have {', '.join(all_devices)}"


def _check_exact_names(setting: rule_types.Setting, ranks: rule_types.RankContext) -> Iterator[str]:
    name_list = lists.parse(setting.text)
    if name_list.exact and not name_list.exclude and _uses_virtual_functions(ranks):
        named = {device for devices in ranks.fabric_context.devices or () for device in devices}
        by_policy = bool(name_list.entries) and all(entry.name in named for entry in name_list.entries)
        if not by_policy:
            yield "names of virtual functions are not known before they are allocated; use a prefix, such as mlx5"


def _uses_virtual_functions(ranks: rule_types.RankContext) -> bool:
    requested = ranks.rdma_devices
    return bool(ranks.fabric_context.exclusive) and (not requested or any(map(rule_types.is_virtual, requested)))


def _check_networks(setting: rule_types.Setting, ranks: rule_types.RankContext) -> Iterator[str]:
    context = ranks.fabric_context
    # A RoCE device needs an interface in the pod, unless SR-IOV brings both together.
    if not ranks.networks or context.transport is not policies.Transport.ROCE or context.exclusive:
        return
    name_list = lists.parse(setting.text)
    devices = frozenset(name_list.entries) if name_list.exact and not name_list.exclude else frozenset()
    without_network = sum(rail.network is None for rail in context.fabric.rails) if context.fabric else 0
    if ranks.networks < len(devices) - without_network:
        yield (
            f"names {text.format_count(len(devices), 'device')}, and the pod selects "
            f"{text.format_count(ranks.networks, 'secondary network')}: a RoCE device "
            "without an interface in the pod has no GID there; select one network for each, or name fewer devices"
        )


def _check_look_alikes(setting: rule_types.Setting, _: rule_types.RankContext) -> Iterator[str]:
    for entry in lists.parse(setting.text).entries:
        if match := _LOOK_ALIKE.match(entry.name):
            name = f"mlx{match[1]}{entry.name[match.end() :]}"
            yield (
                f"{rule_types.quote(entry.name)} looks like {rule_types.quote(name)} and is another name, which no "
                f"device has; write {rule_types.quote(name)}"
            )


def _parse_nccl(text: str) -> lists.NameList | None:
    name_list = lists.parse(text)
    return name_list if name_list.entries else None


def _parse_ucx(text: str) -> lists.NameList | None:
    """Return the devices of a list of UCX: exact names with a port. Patterns and `all` are not read."""
    return None if text == "all" or set(text) & set("^*?[") else lists.parse(f"={text}")


def _parse_nvshmem(text: str) -> lists.NameList | None:
    """Return the devices of a list of NVSHMEM: exact names, `^` in front excludes; a mapping adds a count."""
    mark = "^" if text.startswith("^") else ""
    return lists.parse(f"{mark}={text.removeprefix('^')}")


# UCX: documentation of UCX_NET_DEVICES. NVSHMEM: src/modules/transport/ibrc/ibrc.cpp.
_PARSERS: Mapping[str, Callable[[str], lists.NameList | None]] = {
    _HCA: _parse_nccl,
    "UCX_NET_DEVICES": _parse_ucx,
    _NVSHMEM_LIST: _parse_nvshmem,
    _NVSHMEM_MAPPING: _parse_nvshmem,
}


def _check_left_out(setting: rule_types.Setting, ranks: rule_types.RankContext) -> Iterator[str]:
    if not setting.value or ranks.fabric_context.transport in _UNREAD or rule_types.is_on_efa(ranks):
        return
    if setting.name == _NVSHMEM_MAPPING and _NVSHMEM_LIST in ranks.effective:
        return  # NVSHMEM ignores the mapping beside the list
    name_list = _PARSERS[setting.name](setting.text)
    selection = None if name_list is None else _describe_selection(name_list, ranks)
    if selection is not None and not rule_types.is_policy_value(setting, ranks):
        yield (
            f"selects {selection}: the others carry nothing, and no log says so; "
            "remove it, or request fewer rails by the annotation railwright.io/rails"
        )


def _describe_selection(name_list: lists.NameList, ranks: rule_types.RankContext) -> str | None:
    """Return how many rails a list selects, and which it leaves out; None if it selects all or none of them."""
    for devices in ranks.fabric_context.devices or ():
        left_out = [device for device in devices if not name_list.selects(device)]
        if left_out and len(left_out) < len(devices):
            names = ", ".join(left_out[:_MAX_NAMED]) + (", ..." if len(left_out) > _MAX_NAMED else "")
            return f"{len(devices) - len(left_out)} of the pod's {len(devices)} rails and leaves out {names}"
    if ranks.fabric_context.devices is not None:
        return None
    total, named = _count_rails(ranks), _count_named(name_list)
    return f"{named} of the pod's {total} rails" if 0 < named < total else None


def _count_rails(ranks: rule_types.RankContext) -> int:
    """Return the number of rails whose device names are not known: those of the policy, or requested one by one."""
    if ranks.fabric_context.rails:
        return len(ranks.fabric_context.rails)
    if ranks.fabric_context.fabric is not None:
        return 0
    return sum(amount for name, amount in ranks.rdma_devices.items() if rule_types.is_exclusive(name))


def _count_named(name_list: lists.NameList) -> int:
    """Return the number of devices that a list of exact names selects at most; 0 if that cannot be told.

    Entries without a number at the end are interfaces.
    """
    names = {entry.name for entry in name_list.entries}
    is_list_of_devices = all(name[-1].isdigit() and not name.startswith(_INTERFACES) for name in names)
    return len(names) if name_list.exact and not name_list.exclude and is_list_of_devices else 0


def _check_nvshmem(_: rule_types.Setting, ranks: rule_types.RankContext) -> Iterator[str]:
    switch = ranks.get_setting(_NVSHMEM_SWITCH)
    if switch is None or (switch.value is not None and not switch.value.lower().startswith(_NVSHMEM_ON)):
        yield f"NVSHMEM reads the list only with {_NVSHMEM_SWITCH}=1; set it too"


RULES = (
    rule_types.Rule("N12", frozenset(_LONGEST), _check_grammar),
    rule_types.Rule("N13", frozenset({_HCA}), _check_prefix),
    rule_types.Rule("N14", frozenset({_HCA}), _check_count),
    rule_types.Rule("N15", frozenset({_HCA}), _check_presence),
    rule_types.Rule("N16", frozenset({_HCA}), _check_exact_names),
    rule_types.Rule("N47", frozenset({_HCA}), _check_networks),
    rule_types.Rule("N53", frozenset({_NVSHMEM_LIST}), _check_nvshmem),
    rule_types.Rule("N61", frozenset(_PARSERS), _check_left_out),
    rule_types.Rule("N67", frozenset(_PARSERS), _check_look_alikes),
)
