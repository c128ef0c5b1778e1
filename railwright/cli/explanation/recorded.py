"""Describes and prints what injection changed in a pod, and why, from the pod's record and spec."""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from railwright.cli import formats, output
from railwright.fabric import intent, names, text, views
from railwright.fabric.reasons import reason
from railwright.fabric.reasons.codes import VariableCode

_MEANINGS = {code.value: code.meaning for code in VariableCode}
_SET_BY_POLICY = VariableCode.SET_BY_POLICY.meaning


_BY_KIND = {  # kind of an entry -> (change, reason), with the name after the kind, the rails and the fabric
    "networks": ("annotation k8s.v1.cni.cncf.io/networks", "attaches the pod to the networks of {rails}"),
    "devices": ("requests of devices", "the devices of {rails}"),
    "claims": (
        "resource claims",
        "the devices of {rails}; with `acceleratorClass` also the GPUs, whose requests are removed",
    ),
    "annotations": ("annotation {name}", "`annotations` of fabric {fabric}"),
    f"mounts.{names.DEV_SHM}": ("mount {name}", "memory for NCCL's host buffers"),
    f"mounts.{names.DEV_INFINIBAND}": ("mount {name}", "no device plugin provides these devices"),
    "nccl.conf": ("file nccl.conf", "delivers NCCL's settings to ranks that do not get them by the environment"),
    "ucx.conf": ("mount of ucx.conf", "delivers UCX's settings to ranks that ssh starts"),
    "mounts": ("mount {name}", "fabric {fabric} mounts it"),
    "resources": ("request of {name}", "fabric {fabric} needs it"),
    "security": ("capability {name}", "fabric {fabric} needs it to register memory with the NIC"),
    "security.privileged": ("privileged", "devices of fabric {fabric} are not accessible otherwise"),
    "pod": ("{name}", "fabric {fabric} sets it"),
    "sourceScript": ("command", "a script sets the variables of fabric {fabric} before the program starts"),
    "preflight": ("init container", "finds the rails of fabric {fabric} in the pod and checks them"),
    "found": ("mount /run/railwright", "what the init container found: devices of the rails, and their variables"),
}


class Change(msgspec.Struct, frozen=True):
    """A change of a pod: its entry in the record, the resulting values, and the reason."""

    entry: str  # "" for a change that the record does not list
    change: str
    reason: str


class Injection(msgspec.Struct, frozen=True, kw_only=True):
    """The changes of a pod by injection with their reasons, and what was kept and skipped."""

    fabric: str = ""
    role: str = ""
    rails: Sequence[str] = ()
    changes: Sequence[Change] = ()
    kept: Mapping[str, Sequence[str]] = {}  # the user's own settings, by container
    skipped: Mapping[str, reason.Reason] = {}
    warnings: Sequence[reason.Reason] = ()
    opt_in_unknown: str = ""  # why it is not known whether the pod opted in
    unaccelerated: str = ""  # why the label of the namespace does not opt the pod in
    topology: intent.TopologyRecord | None = None  # what its workload asks of the scheduler, or why it asks for nothing

    @property
    def no_opt_in(self) -> str:
        """Return why the pod did not opt in, or why that is not known; "" if there is no label."""
        return self.opt_in_unknown or self.unaccelerated

    @property
    def summary(self) -> str:
        """Return fabric, role and rails in one line."""
        rails = f", rails {', '.join(self.rails)}" if self.rails else ""
        return f"fabric {self.fabric}, role {self.role}{rails}"


def describe_injection(pod: views.Pod) -> Injection:
    """Return the injection of a pod by its record, with the values that the pod has now."""
    record, topology = intent.read_record(pod), intent.read_topology(pod)
    return Injection(
        fabric=record.fabric,
        role=record.role,
        rails=record.rails or (),
        changes=tuple(_list_changes(pod, record)),
        kept=record.user_values,
        skipped=record.skipped,
        topology=topology if topology.reason else None,
    )


def _list_changes(pod: views.Pod, record: intent.Record) -> Iterator[Change]:
    """Yield the changes in the record, with the pod's values; then each request of the resource `railwright.io/rails`.

    Schedulers call the extender only for pods that request a managed resource, such as this one.
    """
    for entry in record.added:
        kind, _, name = entry.partition(".")
        if kind == "env":
            change = ", ".join(_list_values(pod, record, name)) or f"env {name}"
            yield Change(entry, change, _MEANINGS.get(record.reasons.get(entry, ""), _SET_BY_POLICY))
        else:
            described, why = _BY_KIND.get(entry) or _BY_KIND.get(kind, ("{name}", "fabric {fabric} has it"))
            values = {"name": name or entry, "rails": ", ".join(record.rails or ()), "fabric": record.fabric}
            yield Change(entry, described.format(**values), why.format(**values))
    for container in pod.spec.containers:
        if (amount := container.requests.get(names.MANAGED_RESOURCE)) is not None:
            request = f"{container.name}: request of {names.MANAGED_RESOURCE} {text.quote(str(amount))}"
            yield Change("", request, "schedulers call the extender only for pods that request a managed resource")


def _list_values(pod: views.Pod, record: intent.Record, name: str) -> Iterator[str]:
    """Yield the variable with its value in each container that got the fabric, or in all if the record names none."""
    for container in pod.spec.containers:
        if container.name in record.containers or not record.containers:
            for variable in container.env or ():
                if variable.name == name:
                    value = "from a file or field" if variable.value is None else text.quote(variable.value)
                    yield f"{container.name}: env {name} {value}"


# --- the text -------------------------------------------------------------------------------------------------

_COLUMNS = (formats.Column("change"), formats.Column("why", wrap=True))


def print_injection(injection: Injection) -> None:
    """Print the changes with their reasons, the topology, warnings, kept settings of the pod, and skipped entries.

    The entry `found` is printed as a note: its reason names libraries that do not read the init container's files.
    """
    if injection.changes:
        formats.print_table(_COLUMNS, [(change.change, change.reason) for change in injection.changes])
    if (topology := injection.topology) is not None and topology.reason is not None:
        decision = f"{topology.scheduler or 'an unknown scheduler'} decides where the gang runs; {topology.reason.line}"
        output.print_styled((f"topology: {decision}", "cyan"))
    for warning in injection.warnings:
        output.print_styled((f"warning: {warning.line}", "yellow"))
    for container, own in injection.kept.items():
        output.print_styled((f"kept: {container}: {', '.join(own)} (the pod's own)", "cyan"))
    for entry, why in injection.skipped.items():
        prefix = "note" if entry.partition(".")[0] == "found" else f"skipped: {entry}"
        output.print_styled((f"{prefix}: {why.text}", "dim"))
