"""Rules about variables that list devices or interfaces: their grammar, and which devices of the pod they select.

NCCL, UCX and NVSHMEM each have their own grammar. `_LISTS` has the grammar of each variable.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from railwright.fabric import text
from railwright.fabric.lint.rule_types import (
    BLANKS,
    QUOTES,
    RankContext,
    Setting,
    Severity,
    is_exclusive_resource,
    is_nvshmem_on,
    is_virtual_resource,
    quote,
    rule,
)
from railwright.fabric.nccl import parsing
from railwright.fabric.policy import model as policies

_HCA = "NCCL_IB_HCA"
_UCX_LIST = "UCX_NET_DEVICES"
_NVSHMEM_LIST, _NVSHMEM_MAPPING = "NVSHMEM_HCA_LIST", "NVSHMEM_HCA_PE_MAPPING"
_NVSHMEM_SWITCH = "NVSHMEM_ENABLE_NIC_PE_MAPPING"


class _ListGrammar(msgspec.Struct, frozen=True):
    """Grammar of a variable with a list, and the effect of a list that selects nothing."""

    library: str
    longest: int = parsing.MAX_DEVICE_LENGTH  # characters of a name in NCCL's lists
    is_nccl: bool = False  # the grammar of NCCL: prefixes, or whole names after `=`
    is_of_devices: bool = True  # False: only of interfaces
    effect: str = ""


# NCCL: src/misc/utils.cc; NVSHMEM's bootstrap has a copy of it (src/modules/bootstrap/uid/ncclSocket).
# UCX: src/ucp/core/ucp_context.c. NVSHMEM: src/modules/transport/common/transport_common.cpp and ibrc/ibrc.cpp.
_LISTS: Mapping[str, _ListGrammar] = {
    _HCA: _ListGrammar("NCCL", is_nccl=True, effect="NCCL would use TCP"),
    "NCCL_SOCKET_IFNAME": _ListGrammar("NCCL", parsing.MAX_INTERFACE_LENGTH, is_nccl=True, is_of_devices=False),
    "NCCL_OOB_NET_IFNAME": _ListGrammar("NCCL", parsing.MAX_INTERFACE_LENGTH, is_nccl=True, is_of_devices=False),
    "NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME": _ListGrammar(
        "NVSHMEM", parsing.MAX_INTERFACE_LENGTH, is_nccl=True, is_of_devices=False
    ),
    "GLOO_SOCKET_IFNAME": _ListGrammar("Gloo", is_of_devices=False),
    "TP_SOCKET_IFNAME": _ListGrammar("TensorPipe", is_of_devices=False),
    _UCX_LIST: _ListGrammar("UCX", effect="UCX finds no device and fails, or uses TCP"),
    _NVSHMEM_LIST: _ListGrammar("NVSHMEM", effect="NVSHMEM finds no device and fails"),
    _NVSHMEM_MAPPING: _ListGrammar("NVSHMEM", effect="NVSHMEM finds no device and fails"),
}
DEVICE_LISTS = frozenset(name for name, row in _LISTS.items() if row.is_of_devices)
# Names of drivers, with which those of RDMA devices begin; other names in a list of UCX are interfaces.
_DRIVER = re.compile(r"(?:mlx[45]|bnxt_re|ionic|irdma|rocep|roceo|rdmap|erdma|qedr|hns|efa)(?P<rest>.*)", re.DOTALL)
# How people write the names of drivers' devices, and how they begin: m1x5_0, MLX5-0, mlx50, bnxt_re_0, ionic0
_BEGINNINGS = (
    (re.compile(r"(?:m[l1i|]x|mxl)[_-]?([45])[_-]?(?=\d)", re.IGNORECASE), r"mlx\1_"),
    (re.compile(r"(?:m[l1i|]x|mxl)[_-]?([45])", re.IGNORECASE), r"mlx\1"),
    (re.compile(r"bnxt[_-]?re[_-]?(?=\d)", re.IGNORECASE), "bnxt_re"),
    (re.compile(r"[i1l|]onic[_-]?(?=\d)", re.IGNORECASE), "ionic_"),
)
_PATTERNS = frozenset("*?[")  # some releases of UCX expand these patterns, so lint does not check such a list


@rule("N12", Severity.ERROR, settings=frozenset(_LISTS))
def check_list_grammar(setting: Setting, _: RankContext) -> Iterator[str]:
    """An entry of a device or interface list matches nothing.

    NCCL's grammar is: optional ^ (exclude), then optional = (exact), then names separated by commas without blanks. If
    NCCL_IB_HCA matches nothing, NCCL reports no error and continues over TCP. NVSHMEM's bootstrap reads its interface
    in the same way. Lists of devices of UCX and NVSHMEM have whole names, without prefixes and =; NVSHMEM reads ^ in
    front as NCCL does. Gloo and TensorPipe read neither mark, and process groups on CPU fail to start. UCX names a
    device with its port, mlx5_0:1, and takes one without it only since January 2026.

    Source: NVIDIA/nccl src/misc/utils.cc and src/transport/net_ib/init.cc, run on the extracted grammar; openucx/ucx
    src/ucp/core/ucp_context.c and pull request 11142; NVIDIA/nvshmem src/modules/transport/common/transport_common.cpp.
    """
    if setting.text:
        yield from _find_grammar_mistakes(setting.name, setting.text)


def _find_grammar_mistakes(name: str, value: str) -> Iterator[str]:
    row = _LISTS[name]
    for word, characters in (("blank", BLANKS), ("quote", QUOTES)):
        if any(character in value for character in characters):
            yield f"a {word} becomes part of the name beside it, which then matches nothing; remove the {word}s"
    yield from _check_nccl_list(value, row) if row.is_nccl else _check_whole_names(name, value, row)


def _check_nccl_list(value: str, row: _ListGrammar) -> Iterator[str]:
    if value.startswith("=^"):
        yield "=^ matches nothing, because ^ must stand before =; write ^="
        return
    name_list = parsing.parse_list(value)
    if not name_list.entries:
        yield f"has no name: it selects {'nothing' if name_list.exclude else 'everything'}; add the name"
    for entry in name_list.entries:
        if entry.name.startswith(("^", "=")):
            name = quote(entry.name)
            yield (
                f"entry {name} matches nothing, because NCCL reads ^ and = only before the whole list; remove them here"
            )
        elif len(entry.name) > row.longest:
            yield f"{quote(entry.name)} is longer than {row.longest} characters and matches nothing; correct it"
        elif entry.port == 0:
            name = quote(entry.name)
            yield f"the port of entry {name} is not a number from 1 on, so it matches nothing; write {name}:1"


def _check_whole_names(name: str, value: str, row: _ListGrammar) -> Iterator[str]:
    for mark in "=" if row.is_of_devices else "^=":
        if mark in value:
            yield (
                f"only NCCL reads the prefix {mark}; {row.library} takes it as part of the name, which then matches "
                f"nothing; remove the {mark}"
            )
            return
    if _PATTERNS.intersection(value) or not row.is_of_devices:
        return
    drivers = [
        (entry, driver) for entry in _parse_list(name, value).entries if (driver := _DRIVER.fullmatch(entry.name))
    ]
    prefixes = [entry.name for entry, driver in drivers if not driver["rest"].strip("_")]
    without_port = [entry.name for entry, _ in drivers if entry.port < 0 and entry.name not in prefixes]
    if prefixes:
        names = quote(", ".join(prefixes))
        yield f"{row.library} takes whole names, not prefixes, so {names} matches nothing; write each whole name"
    if without_port and name == _UCX_LIST:
        ports = quote(",".join(f"{device}:1" for device in without_port))
        yield f"UCX before January 2026 ignores a device without its port; write {ports}"


def _parse_list(name: str, value: str) -> parsing.NameList:
    """Return a list as its library reads it, without the interfaces in a list of UCX."""
    if _LISTS[name].is_nccl:
        return parsing.parse_list(value)
    mark = "^" if value.startswith("^") else ""
    name_list = parsing.parse_list(f"{mark}={value.removeprefix('^')}", _UNLIMITED)
    if name != _UCX_LIST:
        return name_list
    devices = [entry for entry in name_list.entries if entry.port >= 0 or _DRIVER.match(entry.name)]
    return msgspec.structs.replace(name_list, entries=tuple(devices))


_UNLIMITED = 1 << 20  # entries of a list of UCX or NVSHMEM, so that all are counted
# Transports on which no library opens rails by RDMA device names
_WITHOUT_LISTS = {policies.Transport.EFA, policies.Transport.PLUGIN, policies.Transport.TCP}


def _read_device_list(setting: Setting, ranks: RankContext) -> parsing.NameList | None:
    """Return the devices in a list; None if there are none, no library reads the list here, or it violates N12.

    The list of UCX in a benchmark of nccl-tests is None too: there it only selects the path of MPI's control traffic.
    """
    name, value = setting.name, setting.text
    by_mpi = name == _UCX_LIST and ranks.is_benchmark
    is_unread = ranks.fabric_context.transport in _WITHOUT_LISTS or ranks.is_on_efa
    is_covered = name == _NVSHMEM_MAPPING and _NVSHMEM_LIST in ranks.effective_settings  # NVSHMEM ignores the mapping
    has_patterns = not _LISTS[name].is_nccl and bool(_PATTERNS.intersection(value))
    if not value or by_mpi or is_unread or is_covered or has_patterns or any(_find_grammar_mistakes(name, value)):
        return None
    name_list = _parse_list(name, value)
    return name_list if name_list.entries else None


@rule("N15", Severity.ERROR, settings=DEVICE_LISTS)
def check_listed_devices(setting: Setting, ranks: RankContext) -> Iterator[str]:
    """The list names devices that the pod does not have.

    If a device plugin assigns devices exclusively (SR-IOV, eRDMA, EFA), a pod has as many as it requests. If a list
    selects nothing, NCCL reports no error and continues over TCP; UCX and NVSHMEM fail, or use another transport. The
    known devices are those that the policy gives the rails of the fabric, on each node shape where the pod may run.
    Without a policy, misspelt names of drivers' devices are reported, such as m1x5_0: after ^ this entry excludes
    nothing.

    Source: NVIDIA/nccl src/transport/net_ib/init.cc; openucx/ucx src/ucp/core/ucp_context.c; NVIDIA/nvshmem
    src/modules/transport/ibrc/ibrc.cpp; crusoecloud/solutions-library cmk-nccltests/nccl-gb200.yaml, which excludes
    m1x5_0.
    """
    name_list = _read_device_list(setting, ranks)
    if name_list is None:
        return
    count, requested = len(name_list.entries), sum(ranks.rdma_devices.values())
    if ranks.fabric_context.exclusive and not name_list.exclude and 0 < requested < count:
        yield (
            f"names {count} devices, but the container requests {requested}: the other devices are not in the pod; "
            f"request {count} or name {requested}"
        )
    known = ranks.fabric_context.devices or {}
    all_devices = dict.fromkeys(device for devices in known.values() for device in devices)
    # A name in the policy is no misspelling.
    names = [entry.name for entry in name_list.entries if entry.name not in all_devices]
    look_alikes = list(filter(None, map(describe_misspelling, names)))
    yield from look_alikes
    if not known or look_alikes:
        return
    differ, effect = len(set(known.values())) > 1, _LISTS[setting.name].effect
    for shape, devices in known.items():
        if not any(map(name_list.selects, devices)):
            missed = "selects none of the rails' devices"
            if differ:
                yield f"{missed} on {_describe_nodes(shape)}: {effect}. {_describe_devices_by_shape(known)}"
            else:
                yield f"{missed} {', '.join(devices)}: {effect}; change the list so that it selects them too"
            return
    absent = [
        quote(entry.name)
        for entry in name_list.entries
        if not any(entry.matches(device, -1, exact=name_list.exact) for device in all_devices)
    ]
    if absent and not name_list.exclude:
        others = (
            f". {_describe_devices_by_shape(known)}"
            if differ
            else f"; write devices of the rails: {', '.join(all_devices)}"
        )
        yield f"{', '.join(absent)}: no rail of the fabric has this device{others}"


def _describe_nodes(shape: str) -> str:
    return f"nodes of shape {shape}" if shape else "nodes without a shape"


def _describe_devices_by_shape(known: Mapping[str, Sequence[str]]) -> str:
    """Return a sentence with the device names of each node shape, and the fix."""
    shapes = [
        f"{f'shape {shape} has' if shape else 'other nodes have'} {', '.join(devices)}"
        for shape, devices in known.items()
    ]
    return f"Device names differ by node: {', '.join(shapes)}; remove the list"


def describe_misspelling(name: str) -> str:
    """Return the problem of a misspelt device name, such as m1x5_0, with the right name; "" for any other name."""
    for pattern, beginning in _BEGINNINGS:
        if match := pattern.match(name):
            meant = match.expand(beginning) + name[match.end() :]
            own, other = quote(name), quote(meant)
            problem = f"{own} is not the name of a device, but looks like {other}; write {other}"
            return "" if meant == name else problem
    return ""


@rule("N16", Severity.WARNING, settings=DEVICE_LISTS)
def check_unpredictable_names(setting: Setting, ranks: RankContext) -> Iterator[str]:
    """A list has device names that are known only when the pod starts.

    Where the policy names no devices, railwright finds those of the rails when the pod starts, and lists them for the
    libraries. An author's own list takes precedence. The names differ between nodes: on a node with other names the
    list selects no rail, or the devices of another network, and NCCL continues over TCP. Not reported if railwright
    finds no devices: with `resolve: never`, or if the pod skips it.

    A pod with SR-IOV gets any free virtual functions, under names that differ from pod to pod. A list of physical
    functions matches nothing inside it. UCX and NVSHMEM know exact names only, so their lists have to be left out, or
    written by the pod's start script.

    Source: docs/interface.md 3.8; NVIDIA/nccl issues 1427 and 1587; oracle-quickstart/oci-hpc-oke, recommended NCCL
    parameters by shape.
    """
    name_list = _read_device_list(setting, ranks)
    if name_list is None:
        return
    if setting.name in ranks.fabric_context.found:
        yield "overrides the devices that railwright finds in the pod, but names differ by node; remove the list"
    requested = ranks.rdma_devices
    has_functions = any(map(is_virtual_resource, requested)) if requested else bool(ranks.fabric_context.exclusive)
    known = {device for devices in (ranks.fabric_context.devices or {}).values() for device in devices}
    is_known = not name_list.exact or name_list.exclude or all(entry.name in known for entry in name_list.entries)
    if has_functions and not is_known:
        fix = "use a prefix, such as mlx5" if setting.name == _HCA else "remove the list"
        yield f"the names of virtual functions are unknown until the pod has the devices; {fix}"


@rule("N61", Severity.WARNING, settings=DEVICE_LISTS)
def check_omitted_rails(setting: Setting, ranks: RankContext) -> Iterator[str]:
    """A list of devices leaves out rails of the pod, or is not read.

    A list that names two of four rails halves the bandwidth, and NCCL, UCX and NVSHMEM log nothing about the other two.
    Without known device names, a list of exact names is compared with the number of rails, or with the exclusive
    devices that the container requests. NVSHMEM reads NVSHMEM_HCA_LIST only with NVSHMEM_ENABLE_NIC_PE_MAPPING=1;
    otherwise it uses the nearest devices, which may be those of storage or management.

    Source: NVIDIA/nccl src/transport/net_ib/init.cc; UCX, UCX_NET_DEVICES; NVIDIA/nvshmem src/modules/transport/ibrc
    and src/include/host/env.
    """
    if setting.name == _NVSHMEM_LIST:
        switch = ranks.get_setting(_NVSHMEM_SWITCH)
        if switch is None or (switch.value is not None and not is_nvshmem_on(switch.value)):
            yield f"NVSHMEM reads the list only with {_NVSHMEM_SWITCH}=1; set that variable too"
    name_list = _read_device_list(setting, ranks)
    if name_list is not None and (selection := _describe_omitted_rails(name_list, ranks)):
        yield (
            f"selects {selection}: the other rails silently carry no data; "
            "remove the list, or request fewer rails (annotation railwright.io/rails)"
        )


_MAX_NAMED = 8  # devices in a message


def _describe_omitted_rails(name_list: parsing.NameList, ranks: RankContext) -> str:
    """Return how many rails a list selects, and which it omits; "" if it selects all or none."""
    context = ranks.fabric_context
    known = context.devices or {}
    for shape, devices in known.items():
        left_out = [device for device in devices if not name_list.selects(device)]
        if left_out and len(left_out) < len(devices):
            selected = f"{len(devices) - len(left_out)} of the pod's {len(devices)} rails"
            where = f" on {_describe_nodes(shape)}" if len(set(known.values())) > 1 else ""
            return f"{selected}{where} and leaves out {text.join_first(left_out, _MAX_NAMED)}"
    if context.devices is not None or not name_list.exact or name_list.exclude:
        return ""
    # Device names are unknown, so names are counted: against the policy's rails, or the requested exclusive devices.
    total = len(context.rails)
    if context.fabric is None and not total:
        total = sum(amount for name, amount in ranks.rdma_devices.items() if is_exclusive_resource(name))
    named = len({entry.name for entry in name_list.entries})
    return f"{named} of the pod's {total} rails" if named < total else ""
