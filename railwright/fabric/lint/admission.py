"""Lints a pod at admission, with the changes of its injection. Returns warnings and never rejects the pod.

Only findings that the pod's author can fix become warnings, so those about values from the operator's policy do not.
"""

from collections.abc import Iterable, Sequence

from railwright.fabric import names, views
from railwright.fabric.lint import engine, fabric_context, rank_contexts, rule_types
from railwright.fabric.reasons import reason
from railwright.fabric.reasons.codes import AdmissionCode

_MAX_SIZE = 65536  # characters; linting more would delay the API server, and pods in use have far fewer
_ENTRY_SIZE = 100  # characters for which an entry of a list counts
_FIX = "`railwright lint` checks all of it"
TOO_LARGE = (reason.Reason(AdmissionCode.LINT_FAILED, "the pod is too large to be linted during admission", fix=_FIX),)
_TOO_LONG = reason.Reason(
    AdmissionCode.LINT_FAILED, "its command line is too long to be linted during admission", fix=_FIX
)


def list_warnings(
    pod: views.Pod,
    networks: fabric_context.Networks,
    use: fabric_context.FabricUse,
    containers: Sequence[int],
    *,
    is_launcher: bool,
) -> tuple[reason.Reason, ...]:
    """Return the warnings of lint about containers of an injected pod. Never raises.

    A launcher has no rails, and passes settings to ranks in other pods.
    """
    if _measure(pod, networks or ()) > _MAX_SIZE:
        return TOO_LARGE
    warnings: dict[str, reason.Reason] = {}  # by line, because containers may share a name
    try:
        for index in containers:
            container = pod.spec.containers[index]
            found = _check_launcher(pod, index, use) if is_launcher else _check_ranks(pod, index, use, networks)
            for warning in engine.list_warnings([one for one in found if _can_author_fix(one, use, container)]):
                located = warning.locate(f"container {container.name}")
                warnings[located.line] = located
            if rank_contexts.has_unread_settings(container):
                located = _TOO_LONG.locate(f"container {container.name}")
                warnings[located.line] = located
    except Exception as error:  # noqa: BLE001 - a failure of lint must not reject the pod
        message = f"railwright could not lint this pod ({type(error).__name__}); nothing else is affected"
        return (reason.Reason(AdmissionCode.LINT_FAILED, message),)
    return tuple(warnings.values())


def _measure(pod: views.Pod, networks: Sequence[object]) -> int:
    """Return about the number of characters that lint reads of a pod. Settings have limits of their own."""
    entries, characters = len(pod.spec.volumes) + len(networks), len(pod.metadata.annotations.get(names.NCCL_CONF, ""))
    for container in pod.spec.containers:
        entries += len(container.volume_mounts)
        length = sum(map(len, (*(container.command or ()), *(container.args or ()))))
        characters += length if length <= rank_contexts.MAX_COMMAND else 0
    return entries * _ENTRY_SIZE + characters


def _check_ranks(
    pod: views.Pod, index: int, use: fabric_context.FabricUse, networks: fabric_context.Networks
) -> Iterable[rule_types.Finding]:
    job = rank_contexts.JobContext(use=use, networks=networks, limited=True)
    return engine.check(rank_contexts.build(pod, index, job))


def _check_launcher(pod: views.Pod, index: int, use: fabric_context.FabricUse) -> Iterable[rule_types.Finding]:
    """Return the findings about the settings of a launcher's mpirun, and about those that it passes to its ranks."""
    settings = rank_contexts.limit_settings(rank_contexts.list_launched(pod, index, rank_contexts.MAX_COMMAND))
    container = pod.spec.containers[index]
    is_benchmark = rank_contexts.read_command(container, rank_contexts.MAX_COMMAND).is_benchmark
    ranks = rule_types.RankContext(
        container.name, settings, fabric_context.build(use), devices=use.devices, is_benchmark=is_benchmark
    )
    return engine.check(ranks) if settings else ()


def _can_author_fix(finding: rule_types.Finding, use: fabric_context.FabricUse, container: views.Container) -> bool:
    """True for a finding about a variable, unless its value is a literal of the policy: in `env`, or in nccl.conf.

    The policy also determines capabilities, mounts and networks, so the author cannot fix findings about those.
    """
    literal = use.fabric.env.get(finding.name) if use.fabric else None
    in_env = finding.where.startswith("env[") and any(
        entry.name == finding.name and entry.value == literal for entry in container.env
    )
    return bool(finding.name) and (literal is None or not (in_env or finding.where.startswith("line ")))
