"""Tells what was injected into a pod that exists, and why: from the record in its annotation, and from its spec."""

from collections.abc import Iterable, Iterator
from typing import Protocol

import msgspec
from rich.table import Table
from rich.text import Text

from railwright.cli import output
from railwright.fabric import intent, text, views
from railwright.fabric.reasons.codes import VariableCode

_MEANINGS = {code.value: code.meaning for code in VariableCode}
_SET_BY_POLICY = VariableCode.SET_BY_POLICY.meaning


class Change(msgspec.Struct, frozen=True):
    """One entry of the record: what the pod has by it, and the reason."""

    entry: str
    change: str
    reason: str


def list_changes(pod: views.Pod, record: intent.Record) -> Iterator[Change]:
    """Yield what the record lists, with the values that the pod has."""
    for entry in record.added:
        kind, _, name = entry.partition(".")
        if kind == "env":
            change = ", ".join(dict.fromkeys(_list_values(pod, record, name))) or f"env {name}"
            yield Change(entry, change, _MEANINGS.get(record.reasons.get(entry, ""), _SET_BY_POLICY))
        else:
            yield Change(entry, *_describe(entry, record))


_BY_KIND = {  # kind of an entry -> (change, reason), with the name after the kind, the rails and the fabric
    "networks": ("annotation k8s.v1.cni.cncf.io/networks", "attaches the pod to the networks of {rails}"),
    "devices": ("requests of devices", "the devices of {rails}"),
    "claims": ("resource claims", "the devices of {rails}"),
    "annotations": ("annotation {name}", "`annotations` of fabric {fabric}"),
    "mounts": ("mount {name}", "fabric {fabric} mounts it"),
    "resources": ("request of {name}", "fabric {fabric} needs it"),
    "security": ("capability {name}", "fabric {fabric} registers memory with the NIC"),
    "security.privileged": ("privileged", "fabric {fabric} has no other way to its devices"),
    "pod": ("{name}", "fabric {fabric} sets it"),
    "preflight": ("init container", "finds the rails of fabric {fabric} in the pod and checks them"),
    "found": ("mount /run/railwright", "what the init container found: devices of the rails, and their variables"),
}


def _describe(entry: str, record: intent.Record) -> tuple[str, str]:
    """Return the change of an entry that is no variable, and its reason."""
    kind, _, name = entry.partition(".")
    change, reason = _BY_KIND.get(entry) or _BY_KIND.get(kind, ("{name}", "fabric {fabric} has it"))
    values = {"name": name or entry, "rails": ", ".join(record.rails or ()), "fabric": record.fabric}
    return change.format(**values), reason.format(**values)


def _list_values(pod: views.Pod, record: intent.Record, name: str) -> Iterator[str]:
    """Yield the variable with its value, of each container that has rails; all containers if none has."""
    for container in pod.spec.containers:
        if container.name in record.containers or not record.containers:
            for variable in container.env or ():
                if variable.name == name:
                    value = "from a file or field" if variable.value is None else text.quote(variable.value)
                    yield f"{container.name}: env {name} {value}"


class Explained(Protocol):
    """A change and its reason."""

    @property
    def change(self) -> str: ...  # noqa: D102
    @property
    def reason(self) -> str: ...  # noqa: D102


def render(changes: Iterable[Explained]) -> Table:
    """Return the table of changes with their reasons."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", pad_edge=False)
    table.add_column("change", style="green", overflow="fold")
    table.add_column("why", overflow="fold")
    for change in changes:
        table.add_row(Text(output.escape_controls(change.change)), Text(output.escape_controls(change.reason)))
    return table
