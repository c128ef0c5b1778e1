"""What a container's environment says already, against what it is to say.

Owns which entry counts and when it is the user's own. Refuses to know what becomes of it.
"""

from collections.abc import Iterable, Mapping

from railwright.fabric import views
from railwright.fabric.injection import tables
from railwright.fabric.nccl import libraries

ByName = Mapping[str, tuple[int, views.EnvVar]]


def by_name(container: views.Container) -> ByName:
    """Index and entry by name; of two with one name Kubernetes takes the last."""
    return {entry.name: (index, entry) for index, entry in enumerate(container.env_or_none or ())}


def may_come_from_a_source(container: views.Container, *settings: Iterable[tables.Setting]) -> bool:
    """True where envFrom may bring one of the settings: a source with a prefix brings names that begin with it only."""
    if not container.env_from:
        return False
    written = [(source or {}).get("prefix") for source in container.env_from]
    prefixes = tuple(prefix if isinstance(prefix, str) else "" for prefix in written)
    return any(each.name.startswith(prefixes) for some in settings for each in some)


def otherwise(there: ByName, setting: tables.Setting) -> bool:
    """True where the user has set the name to something else; an entry with valueFrom has no value and is that too."""
    at = there.get(setting.name)
    return at is not None and at[1].value != setting.value


def excluded(there: ByName, setting: tables.Setting, ours: Mapping[str, tables.Setting]) -> bool:
    """True where the user has set a twin, which forbids the name or makes it pointless."""
    for twin in libraries.TWINS.get(setting.name, ()):
        if twin in there and (twin not in ours or otherwise(there, ours[twin])):
            return True
    return False
