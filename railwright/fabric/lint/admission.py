"""Lints a pod at admission, with the changes of its injection. Returns a few warnings and never rejects the pod.

Only findings that the pod's author can fix become warnings, so those about values from the operator's policy do not.
"""

from collections.abc import Iterable, Sequence

import msgspec

from railwright.fabric import names, views
from railwright.fabric.lint import commands, engine, fabric_context, rank_contexts, rule_types
from railwright.fabric.nccl import catalogue
from railwright.fabric.policy import model as policies
from railwright.fabric.reasons import reason, rendering
from railwright.fabric.reasons.codes import AdmissionCode

_MAX_SIZE = 65536  # characters; linting more would delay the API server, and pods in use have far fewer
_ENTRY_SIZE = 100  # characters for which an entry of a list counts
TOO_LARGE = (rendering.describe(reason.make(AdmissionCode.LINT_TOO_LARGE)),)


class InjectedPod(msgspec.Struct, frozen=True):
    """A pod with all changes of its injection, and the rails, networks and resources that it uses."""

    pod: views.Pod
    networks: fabric_context.Networks  # in its annotation k8s.v1.cni.cncf.io/networks
    fabric_name: str
    rails: tuple[str, ...]
    resources: frozenset[str]  # of these rails
    containers: tuple[int, ...]  # indices of the containers that the injection selected
    is_launcher: bool  # it has no rails, and passes settings to ranks in other pods that have all rails


def list_warnings(injected: InjectedPod, policy: policies.Policy) -> tuple[rendering.Message, ...]:
    """Return at most five warnings of at most 256 characters each. Never raises."""
    if _measure(injected.pod, injected.networks or ()) > _MAX_SIZE:
        return TOO_LARGE
    try:
        all_rails = policy.compile_once(fabric_context.compile_uses)[injected.fabric_name]
        return _check(injected, find_use(injected, all_rails))
    except Exception as error:  # noqa: BLE001 - a failure of lint must not reject the pod
        return (rendering.describe(reason.make(AdmissionCode.LINT_FAILED, error=type(error).__name__)),)


def prepare() -> None:
    """Index the rules of each variable of NCCL. A server does this before its first review."""
    for variable in catalogue.list_variables():
        engine.list_readers(variable.name, for_admission=True)


def _measure(pod: views.Pod, networks: Sequence[object]) -> int:
    """Return about the number of characters that lint reads of a pod. Settings have limits of their own."""
    entries, characters = len(pod.spec.volumes) + len(networks), len(pod.metadata.annotations.get(names.NCCL_CONF, ""))
    for container in pod.spec.containers:
        entries += len(container.volume_mounts)
        words = (*(container.command or ()), *(container.args or ()))
        characters += sum(map(len, words)) if commands.is_read(words, rank_contexts.MAX_COMMAND) else 0
    return entries * _ENTRY_SIZE + characters


def find_use(injected: InjectedPod, all_rails: fabric_context.FabricUse) -> fabric_context.FabricUse:
    """Return the rails and resources of its fabric that the ranks of a pod use."""
    if injected.is_launcher or (injected.rails, injected.resources) == (all_rails.rail_names, all_rails.resources):
        return all_rails
    rails = tuple([rail for rail in all_rails.rails if rail.name in injected.rails])
    return fabric_context.FabricUse(all_rails.document, all_rails.fabric, rails, injected.resources)


def _check(injected: InjectedPod, use: fabric_context.FabricUse) -> tuple[rendering.Message, ...]:
    warnings: dict[str, rendering.Message] = {}  # by line, because containers may share a name
    job = rank_contexts.JobContext(use=use, networks=injected.networks, limited=True)
    pod_facts = rank_contexts.read_pod(injected.pod, job)
    for index in injected.containers:
        container = injected.pod.spec.containers[index]
        if injected.is_launcher:
            all_findings = _check_passed(injected.pod, index, use)
        else:
            all_findings = engine.check(rank_contexts.build(injected.pod, index, job, pod_facts), for_admission=True)
        findings = [finding for finding in all_findings if _can_author_fix(finding, use, container)]
        for warning in engine.list_warnings(findings):
            located = rendering.locate(warning, f"container {container.name}")
            warnings[located.line] = located
    return engine.limit_warnings(tuple(warnings.values()))


def _check_passed(pod: views.Pod, index: int, use: fabric_context.FabricUse) -> Iterable[rule_types.Finding]:
    """Return the findings about the settings that a launcher's mpirun passes to the ranks in other pods."""
    passed = rank_contexts.limit_settings(rank_contexts.list_passed(pod, index, rank_contexts.MAX_COMMAND))
    if not passed:
        return ()
    title = pod.spec.containers[index].name
    return engine.check(rule_types.RankContext(title, passed, fabric_context.build(use)), for_admission=True)


def _can_author_fix(finding: rule_types.Finding, use: fabric_context.FabricUse, container: views.Container) -> bool:
    """True for a finding about a variable, unless its value is a literal of the policy.

    The policy also determines capabilities, mounts and networks, so the author cannot fix findings about those.
    """
    literal = use.fabric.env.get(finding.name) if use.fabric else None
    is_policy_value = literal is not None and any(
        entry.name == finding.name and entry.value == literal for entry in container.env
    )
    return bool(finding.name) and not is_policy_value
