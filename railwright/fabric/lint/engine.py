"""Runs the lint rules on the ranks of a container or on a policy, and turns findings into admission warnings."""

import functools
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from railwright.fabric import quantity
from railwright.fabric.lint import rank_contexts, rule_types
from railwright.fabric.lint.rules import containers, device_lists, networks, variables
from railwright.fabric.multus import network_selection
from railwright.fabric.nccl import catalogue
from railwright.fabric.policy import model
from railwright.fabric.reasons import reason

# Characters of a name: no known variable has as many, so the rest of a longer name does not matter
LONGEST_NAME = catalogue.MAX_NAME_LENGTH + 1
_ORDER = {severity: rank for rank, severity in enumerate(rule_types.Severity)}
RULES = rule_types.list_rules(variables, device_lists, networks, containers)
_RANK_RULES = tuple(rule for rule in RULES if not rule.settings)


@functools.lru_cache(maxsize=1024)
def find_rules(variable: str) -> tuple[rule_types.Rule, ...]:
    """Return the rules that check a variable. Callers truncate its name to `LONGEST_NAME` characters."""
    return tuple(rule for rule in RULES if rule.checks_variable(variable))


def check_ranks(ranks: rule_types.RankContext) -> tuple[rule_types.Finding, ...]:
    """Return the findings about a container's ranks, without duplicates: errors first, then by code."""
    findings = dict.fromkeys(_list_findings(ranks))
    return tuple(sorted(findings, key=lambda finding: (_ORDER[finding.severity], finding.code)))


def _list_findings(ranks: rule_types.RankContext) -> Iterator[rule_types.Finding]:
    for setting in ranks.effective_settings.values():
        for rule in find_rules(setting.name[:LONGEST_NAME]):
            for problem in rule.check(setting, ranks):
                yield rule.build_finding(problem, setting=setting)
    for rule in _RANK_RULES:
        for found in rule.check(ranks):
            yield rule.build_finding(found.message, found.name, found.setting)


def list_warnings(findings: Sequence[rule_types.Finding]) -> tuple[reason.Reason, ...]:
    """Return the findings as admission warnings, without duplicates. The code of a warning is that of the rule."""
    messages = dict.fromkeys((finding.code, finding.message) for finding in findings)
    return tuple([reason.Reason(code, message) for code, message in messages])


# --- values of a policy, with the rules for pods ------------------------------------------------------------


def list_policy_warnings(document: model.PolicyDocument) -> tuple[reason.Reason, ...]:
    """Return a warning for each finding about a value of the policy. The message names the key."""
    findings: list[rule_types.Finding] = []
    for index, shape in enumerate(document.node_shapes):
        devices = {f"nodeShapes[{index}].devices.{rail}": device for rail, device in shape.devices.items()}
        findings += _check_device_names(devices)
    warnings = [*list_warnings(findings)]
    for name, fabric in document.fabrics.items():
        warnings += list_warnings([*_check_fabric(f"fabrics.{name}", fabric)])
        of_env = list_warnings(_check_variables(document, fabric))
        warnings += [warning.prefix_with(f"fabrics.{name}.env") for warning in of_env]
    return tuple(warnings)


def _check_fabric(path: str, fabric: model.Fabric) -> Iterator[rule_types.Finding]:
    """Yield the findings about a fabric's devices, primary interface and shared memory."""
    devices = {f"{path}.rails[{index}].device": rail.device or "" for index, rail in enumerate(fabric.rails)}
    yield from _check_device_names(devices)
    present, primary = _list_interfaces(fabric), fabric.primary_interface
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


def _check_device_names(devices: Mapping[str, str]) -> Iterator[rule_types.Finding]:
    """Yield a finding for each misspelt device name, such as m1x5_0. `devices` has the names by policy key."""
    for path, device in devices.items():
        if problem := device_lists.describe_misspelling(device):
            yield device_lists.check_listed_devices.build_finding(f"{path}: {problem}")


def _check_variables(document: model.PolicyDocument, fabric: model.Fabric) -> list[rule_types.Finding]:
    """Return the findings about `env` of a fabric, checked like variables of a pod with all rails of the fabric."""
    # Rules accept values of the policy, and report lists that override found devices; `env` is not to be judged so.
    checked = msgspec.structs.replace(fabric, env={}, resolve="never")
    use = rank_contexts.build_full_use(document, checked)
    present = _list_interfaces(fabric)
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
    return [finding for finding in check_ranks(ranks) if finding.name in fabric.env]


def _list_interfaces(fabric: model.Fabric) -> tuple[str, ...] | None:
    """Return the interfaces of the fabric's pods, eth0 first; None if the policy alone does not determine them."""
    if fabric.host_network or fabric.claims is not None or rank_contexts.has_rails_without_multus(fabric):
        return None
    selections = [
        network_selection.Selection(*rail.network_key, interface=rail.interface or "")
        for rail in fabric.rails
        if rail.network_key is not None
    ]
    return (network_selection.CRI_INTERFACE, *network_selection.name_interfaces(selections))
