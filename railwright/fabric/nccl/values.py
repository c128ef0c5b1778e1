"""How a value of a row is found: a constant, a fact of the policy, the devices of the rails.

Owns spelling (NCCL reads decimal digits only, never true or false: src/misc/param.cc), not which variable gets what.
"""

from collections.abc import Callable, Iterable

from railwright.fabric.nccl import model

Value = Callable[[model.Case], str | None]

NCCL_GUIDE = "NCCL user guide, env.rst"  # the source of most rows


def constant(text: str) -> Value:
    """Always this."""
    return lambda _: text


def fact(name: str, default: str | None = None) -> Value:
    """The fact `name` of the policy's nccl section; `default` where the policy does not give it."""

    def value(case: model.Case) -> str | None:
        given = getattr(case.nccl, name)
        if given is None:
            return default
        return str(int(given)) if isinstance(given, bool) else str(given)

    return value


def when(name: str, text: str) -> Value:
    """`text` where the policy's switch `name` is on."""
    return lambda case: text if getattr(case.nccl, name) else None


def in_pod(spell: Callable[[str], str]) -> Value:
    """From the primary interface, which has that name only in a network namespace of the pod's own."""
    return lambda case: None if case.host_network else spell(case.primary_interface)


def devices(fallback: str | None = None) -> Value:
    """Exactly the devices of the rails; `fallback` where the policy names none for some rail, or only the node decides.

    NCCL takes a name without '=' for a prefix: mlx5_1 would be mlx5_10 as well.
    """

    def value(case: model.Case) -> str | None:
        if case.devices:
            return f"={_listed(case.devices)}"
        return fallback

    return value


def plain_devices(case: model.Case) -> str | None:
    """The devices of the rails by their bare names."""
    return _listed(case.devices) if case.devices else None


def with_devices(text: str) -> Value:
    """`text` where the devices of the rails are known."""
    return lambda case: text if case.devices else None


def _listed(names: Iterable[str]) -> str:
    return ",".join(dict.fromkeys(names))
