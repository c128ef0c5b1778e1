"""Writes the found values for libraries of the ranks (rails.env, nccl.conf, ucx.conf) and programs (rails.json).

rails.env has a line NAME='VALUE' for each found variable. kubelet reads it (env[].valueFrom.fileKeyRef), and stops at a
line of another form. nccl.conf and ucx.conf also have the policy's variables and the author's, because ranks that ssh
starts have no environment of the container. NCCL takes values of up to 1,023 bytes (NVIDIA/nccl src/misc/param.cc); UCX
cuts lines of 200 bytes in silence (openucx/ucx src/ucs/config/parser.c).
"""

import json
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from railwright.preflight import checks, expected, resolution

VERSION = 1  # of rails.json (docs/interface.md)
RAILS_ENV, NCCL_CONF, UCX_CONF, RAILS_JSON = "rails.env", "nccl.conf", "ucx.conf", "rails.json"
_LIMITS = {NCCL_CONF: (("NCCL_", "FI_"), 1023), UCX_CONF: (("UCX_",), 198)}  # prefixes, bytes: of a value, of a line


def derive_variables(view: resolution.ContainerView, rails: Sequence[resolution.ResolvedRail]) -> dict[str, str]:
    """Return the variables of the ranks' libraries for the found rails.

    NIXL reads UCX_NET_DEVICES too. NVSHMEM ignores its list of devices without NVSHMEM_ENABLE_NIC_PE_MAPPING. Mooncake
    without MC_ENABLE_DEST_DEVICE_AFFINITY sends to other rails, which isolated rails lose (NVIDIA-NeMo/RL issue 2935).
    MORI without its list uses every device that it sees (ROCm/mori, RdmaContext::Initialize).
    """
    expectations, variables = view.expectations, {}
    used = [rail for rail in rails if rail.device and rail.port]
    ports = ",".join(dict.fromkeys(f"{rail.name}:{rail.port.number}" for rail in used if rail.port))
    devices = ",".join(dict.fromkeys(_name_for_nccl(rail) for rail in used))
    is_listed = bool(used) and not resolution.list_exclusive_rails(view, rails)
    if is_listed and expectations.rule.by_hca:
        variables[expected.HCA] = f"={devices}"
    if is_listed and expectations.transport in {"roce", "infiniband"}:
        variables |= {"UCX_NET_DEVICES": ports, "NVSHMEM_HCA_LIST": ports, "NVSHMEM_ENABLE_NIC_PE_MAPPING": "1"}
        variables["MORI_RDMA_DEVICES"] = ",".join(dict.fromkeys(rail.name for rail in used))
    if used and expectations.rule.gid_kinds:
        variables |= _derive_addresses(expectations, used)
    if len({rail.rail.name for rail in used}) > 1 and expectations.isolated:
        variables["MC_ENABLE_DEST_DEVICE_AFFINITY"] = "1"
    return {name: value for name, value in variables.items() if not expectations.is_set_by_vendor(name)}


def _name_for_nccl(rail: resolution.ResolvedRail) -> str:
    """Return the device, with its port if it has several."""
    return f"{rail.name}:{rail.port.number}" if rail.port and rail.device and len(rail.device.ports) > 1 else rail.name


def _derive_addresses(
    expectations: expected.Expectations, rails: Sequence[resolution.ResolvedRail]
) -> Iterator[tuple[str, str]]:
    """Yield the variables of address family and range, and of the GID index if all rails have the same."""
    gids = [rail.gid for rail in rails]
    indexes = {gid.position if gid else None for gid in gids}
    index = indexes.pop() if len(indexes) == 1 else None
    is_roce = expectations.transport == "roce"
    if index is not None or expectations.stated_index is not None:
        yield expected.GID_INDEX, str(index if expectations.stated_index is None else expectations.stated_index)
    if index is not None:
        yield "MC_GID_INDEX", str(index)
        if is_roce:
            yield from ((f"{library}_IB_GID_INDEX", str(index)) for library in ("UCX", "NVSHMEM", "UCCL", "MORI"))
    if any(gid and gid.address.version == 6 for gid in gids):
        yield expected.ADDRESS_FAMILY, "AF_INET6"
        yield from [("NVSHMEM_IB_ADDR_FAMILY", "AF_INET6")] * is_roce
    if expectations.address_range is not None:
        yield "NCCL_IB_ADDR_RANGE", str(expectations.address_range)
        yield from [("NVSHMEM_IB_ADDR_RANGE", str(expectations.address_range))] * is_roce


def format_files(
    expectations: expected.Expectations, derived: Mapping[str, str]
) -> tuple[dict[str, str], list[checks.Problem]]:
    """Return the text of rails.env, nccl.conf and ucx.conf, and a problem for each variable that does not fit."""
    every = {**derived, **expectations.variables}
    every |= {name: value for name, value in expectations.environment.items() if name in every}
    problems = []
    texts = {
        RAILS_ENV: "".join(
            f"{name}='{value}'\n"
            for name, value in derived.items()
            if name not in expectations.variables and name not in expectations.environment and _is_writable_value(value)
        )
    }
    for file, (prefixes, limit) in _LIMITS.items():
        lines = []
        for name, value in every.items():
            measured = value if file == NCCL_CONF else f"{name}={value}"
            if not name.startswith(prefixes) or name == "NCCL_CONF_FILE":
                continue
            if _is_writable_value(value) and len(measured.encode()) <= limit:
                lines.append(f"{name}={value}\n")
            else:
                fix = "set it in the environment of the ranks"
                problems.append(checks.Problem(name, f"does not fit into a line of {file}", fix, stated=False))
        texts[file] = "".join(lines)
    return texts, problems


def _is_writable_value(value: str) -> bool:
    """True if each of the files can hold the value: it is not empty, in one line, and without single quotes."""
    return bool(value) and value.isprintable() and "'" not in value


def build_rails_json(
    view: resolution.ContainerView,
    rails: Sequence[resolution.ResolvedRail],
    variables: Mapping[str, str],
    problems: Sequence[checks.Problem],
) -> dict[str, Any]:
    """Return the content of rails.json (docs/interface.md 5.3)."""
    return {
        "version": VERSION,
        "node": view.expectations.environment.get("NODE_NAME"),
        "ready": not any(problem.stated for problem in problems),
        "rails": [_describe_rail(rail) for rail in rails],
        "variables": dict(variables),
        "problems": [problem._asdict() for problem in problems],
    }


def _describe_rail(rail: resolution.ResolvedRail) -> dict[str, Any]:
    device, port, gid, interface = rail.device, rail.port, rail.gid, rail.interface
    return {
        "name": rail.rail.name,
        "device": rail.name or None,
        "basis": rail.basis,
        "port": port.number if port else None,
        "state": port.state.rpartition(" ")[2] if port else None,
        "rate": port.rate if port else None,
        "gidIndex": gid.position if gid else None,
        "address": rail.address or None,
        "interface": interface.name if interface else None,
        "mtu": interface.mtu if interface else None,
        "pci": (device.pci_address if device else "") or None,
    }


def write_files(folder: str, texts: Mapping[str, str]) -> None:
    """Write texts to files by name, readable by every user. Raises OSError."""
    for name, text in texts.items():
        path = pathlib.Path(folder, name)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o644)  # the ranks may run as another user


def format_json(tree: Mapping[str, Any]) -> str:
    """Return content as JSON in one line."""
    return f"{json.dumps(tree)}\n"
