"""Builds the value functions of rows: from a constant, a key of the policy, or the rails' devices.

Booleans become 0 and 1, because NCCL does not read true and false (NVIDIA/nccl src/misc/param.cc).
"""

from collections.abc import Callable, Iterable

from railwright.fabric.nccl import derivation_types

Value = Callable[[derivation_types.Case], str | None]


def return_constant(text: str) -> Value:
    """Return a function that always gives `text`."""
    return lambda _: text


def return_policy_value(name: str, default: str | None = None) -> Value:
    """Return a function that gives the policy's `nccl` key `name`, or `default` if the key is unset."""

    def value(case: derivation_types.Case) -> str | None:
        setting = getattr(case.nccl, name)
        if setting is None:
            return default
        return str(int(setting)) if isinstance(setting, bool) else str(setting)

    return value


def return_if_enabled(name: str, text: str) -> Value:
    """Return a function that gives `text` if the policy's boolean `nccl` key `name` is true."""
    return lambda case: text if getattr(case.nccl, name) else None


def return_primary_interface(format_name: Callable[[str], str]) -> Value:
    """Return a function that formats the primary interface's name.

    It gives None for hostNetwork pods, because the interface has that name only in the pod's own network namespace.
    """
    return lambda case: None if case.host_network else format_name(case.primary_interface)


def return_address_range(case: derivation_types.Case) -> str | None:
    """Return the range of the rails' addresses; None on the host network, unless it has the nodes' addresses too."""
    return case.nccl.address_range if not case.host_network or case.nccl.address_range_includes_host else None


def return_exact_devices(fallback: str | None = None) -> Value:
    """Return a function that lists exactly the rails' devices, or gives `fallback` if they are unknown.

    The list starts with '=', because NCCL reads other names as prefixes: mlx5_1 would also select mlx5_10.
    """

    def value(case: derivation_types.Case) -> str | None:
        if case.devices:
            return f"={_join(case.devices)}"
        return fallback

    return value


def list_devices(case: derivation_types.Case) -> str | None:
    """Return the rails' device names as a comma-separated list, or None if they are unknown."""
    return _join(case.devices) if case.devices else None


def return_if_devices_known(text: str) -> Value:
    """Return a function that gives `text` if the rails' devices are known."""
    return lambda case: text if case.devices else None


def _join(names: Iterable[str]) -> str:
    return ",".join(dict.fromkeys(names))
