"""Compares the environment of a container with the variables that it should get.

`environment` decides how a difference is resolved.
"""

from collections.abc import Iterable, Mapping

from railwright.fabric import views
from railwright.fabric.injection import env_tables
from railwright.fabric.nccl import libraries

EntriesByName = Mapping[str, tuple[int, views.EnvVar]]


def index_entries(container: views.Container) -> EntriesByName:
    """Return index and entry by name. Of entries with the same name Kubernetes uses the last."""
    return {entry.name: (index, entry) for index, entry in enumerate(container.env_or_none or ())}


def env_from_may_set(container: views.Container, *setting_lists: Iterable[env_tables.Setting]) -> bool:
    """True if envFrom may set one of the variables. A source with a prefix sets only names with that prefix."""
    if not container.env_from:
        return False
    prefix_values = [(source or {}).get("prefix") for source in container.env_from]
    prefixes = tuple(prefix if isinstance(prefix, str) else "" for prefix in prefix_values)
    return any(setting.name.startswith(prefixes) for group in setting_lists for setting in group)


def is_overridden(existing: EntriesByName, setting: env_tables.Setting) -> bool:
    """True if the user has set the variable to another value. An entry with valueFrom always counts as one."""
    match = existing.get(setting.name)
    return match is not None and match[1].value != setting.value


def has_conflict(
    existing: EntriesByName, setting: env_tables.Setting, own_settings: Mapping[str, env_tables.Setting]
) -> bool:
    """True if the user set a variable that conflicts with this one."""
    for other in libraries.CONFLICTING_VARIABLES.get(setting.name, ()):
        if other in existing and (other not in own_settings or is_overridden(existing, own_settings[other])):
            return True
    return False
