"""Lints variables, devices, interfaces and shared memory in a policy, with the rules for pods."""

from collections.abc import Iterator, Mapping

import msgspec

from railwright.fabric import quantity
from railwright.fabric.lint import engine, rank_contexts, rule_types
from railwright.fabric.lint.rules import containers, device_lists, networks
from railwright.fabric.multus import network_selection
from railwright.fabric.policy import model
from railwright.fabric.reasons import reason


def list_warnings(document: model.PolicyDocument) -> tuple[reason.Reason, ...]:
    """Return a warning for each finding about a value of the policy. The message names the key."""
    findings: list[rule_types.Finding] = []
    for index, shape in enumerate(document.node_shapes):
        devices = {f"nodeShapes[{index}].devices.{rail}": device for rail, device in shape.devices.items()}
        findings += _check_devices(devices)
    warnings = [*engine.list_warnings(findings)]
    for name, fabric in document.fabrics.items():
        warnings += engine.list_warnings([*_check_fabric(f"fabrics.{name}", fabric)])
        of_env = engine.list_warnings(_check_variables(document, fabric))
        warnings += [warning.prefix_with(f"fabrics.{name}.env") for warning in of_env]
    return tuple(warnings)


def _check_fabric(path: str, fabric: model.Fabric) -> Iterator[rule_types.Finding]:
    """Yield the findings about a fabric's devices, primary interface and shared memory."""
    devices = {f"{path}.rails[{index}].device": rail.device or "" for index, rail in enumerate(fabric.rails)}
    yield from _check_devices(devices)
    present, primary = _name_interfaces(fabric), fabric.primary_interface
    if present is not None and fabric.nccl.derive and primary not in present:
        listed = ", ".join(present)
        problem = f"is not an interface of the pods, which have {listed}, so NCCL fails to start; write {present[0]}"
        yield networks.check_interface_exists.build_finding(f"{path}.primaryInterface: {primary} {problem}")
    amount = fabric.mounts.shared_memory
    if amount is not None and quantity.read_units(amount) < containers.LEAST_SHARED_MEMORY:
        problem = (
            f"{path}.mounts.sharedMemory: {amount} is too small: a container with two or more accelerators "
            "needs at least 1Gi; raise it"
        )
        yield containers.check_shared_memory.build_finding(problem)


def _check_devices(devices: Mapping[str, str]) -> Iterator[rule_types.Finding]:
    """Yield a finding for each misspelt device name, such as m1x5_0. `devices` has the names by policy key."""
    for path, device in devices.items():
        if problem := device_lists.describe_misspelling(device):
            yield device_lists.check_listed_devices.build_finding(f"{path}: {problem}")


def _check_variables(document: model.PolicyDocument, fabric: model.Fabric) -> list[rule_types.Finding]:
    """Return the findings about `env` of a fabric, checked like variables of a pod with all rails of the fabric."""
    # rules accept values that the policy has, and report none beside found devices: neither may hide a finding here
    checked = msgspec.structs.replace(fabric, env={}, resolve="never")
    use = rank_contexts.build_full_use(document, checked)
    present = _name_interfaces(fabric)
    context = msgspec.structs.replace(
        rank_contexts.build_fabric_context(use), interfaces=present, rail_interfaces=(present or ())[1:]
    )
    ranks = rule_types.RankContext(
        "",
        settings=tuple(rule_types.Setting(name, value, "") for name, value in fabric.env.items()),
        fabric_context=context,
        devices=use.devices,
        host_network=fabric.host_network,
        privileged=fabric.security.privileged,
    )
    return [finding for finding in engine.check_ranks(ranks) if finding.name in fabric.env]


def _name_interfaces(fabric: model.Fabric) -> tuple[str, ...] | None:
    """Return the interfaces of the fabric's pods, eth0 first; None if the policy alone does not determine them."""
    if fabric.host_network or fabric.claims is not None or rank_contexts.has_rails_without_multus(fabric):
        return None
    selections = [
        network_selection.Selection(*rail.network_key, interface=rail.interface or "")
        for rail in fabric.rails
        if rail.network_key is not None
    ]
    return (network_selection.CRI_INTERFACE, *network_selection.name_interfaces(selections))
