"""Plans the injection of a pod and lints the injected pod. Connects the packages injection and lint.

Only findings that the pod's author can fix become warnings. Findings about values of the operator's policy do not.
"""

from collections.abc import Collection, Sequence

import msgspec

from railwright.fabric import intent, names, views
from railwright.fabric.injection import facts, template_plan, templates
from railwright.fabric.injection import plan as injection
from railwright.fabric.lint import commands, engine, rank_contexts, rule_types
from railwright.fabric.lint.rules import device_lists
from railwright.fabric.lint.rules import networks as network_rules
from railwright.fabric.multus import network_selection
from railwright.fabric.policy import model as policies
from railwright.fabric.reasons import reason
from railwright.fabric.reasons.codes import AdmissionCode

_MAX_CHANGES = 512  # of a pod that is linted: the API server waits, and no real pod gets so many
_MAX_SIZE = 65536  # characters; linting more would delay the API server, and pods in use have far fewer
_ENTRY_SIZE = 100  # characters for which an entry of a list counts
# Variables that can turn off or contradict a derived variable, each with its one harmless value ("": no value)
_SWITCHES = {"NCCL_IB_ADDR_FAMILY": "", "NCCL_IB_DISABLE": "0", "NCCL_NET_PLUGIN": ""}
_FIX = "`railwright lint` checks all of it"
_TOO_LARGE = (reason.Reason(AdmissionCode.LINT_FAILED, "the pod is too large to be linted during admission", fix=_FIX),)
_TOO_LONG = reason.Reason(
    AdmissionCode.LINT_FAILED, "its command line is too long to be linted during admission", fix=_FIX
)


def plan_pod(
    pod: views.Pod, policy: policies.Policy, cluster: facts.ClusterFacts, display_name: str = ""
) -> injection.Outcome:
    """Return the plan of a pod, with the warnings of lint. Never raises because of the pod's content.

    `display_name` names the pod in a refusal. If it is empty, the pod's own name is used.
    """
    outcome = injection.plan_pod(pod, policy, cluster, display_name)
    if not isinstance(outcome, injection.Injection):
        return outcome
    warnings = lint_injected(outcome, policy)
    return msgspec.structs.replace(outcome, warnings=outcome.warnings + warnings) if warnings else outcome


def plan_template(
    template: templates.Template, policy: policies.Policy, cluster: facts.ClusterFacts, workload_name: str
) -> template_plan.TemplatePlan | injection.Refusal:
    """Return the plan of a pod template, with the warnings of lint. `workload_name` is used in messages."""
    outcome = template_plan.plan_template(template, policy, cluster, workload_name)
    if isinstance(outcome, injection.Refusal) or outcome.injection is None:
        return outcome
    warnings = lint_injected(outcome.injection, policy)
    if not outcome.is_enforced:
        warnings = injection.prefix_if_enforced(warnings)
    injected = msgspec.structs.replace(outcome.injection, warnings=outcome.injection.warnings + warnings)
    located = template_plan.locate_warnings(template, warnings)
    return msgspec.structs.replace(outcome, warnings=outcome.warnings + located, injection=injected)


def lint_injected(injected: injection.Injection, policy: policies.Policy) -> tuple[reason.Reason, ...]:
    """Return the warnings of lint about a pod after its injection. Never raises.

    A launcher has no rails, so only the settings that it passes to ranks in other pods are linted.
    """
    return _lint_pod(injected, build_fabric_use(injected, policy.document))


def lint_recorded(pod: views.Pod, policy: policies.Policy | None) -> tuple[reason.Reason, ...]:
    """Return the warnings of lint about a pod that was injected earlier. Never raises.

    If the policy lacks the pod's fabric, only rules that need no fabric run, and no variable in the record is reported.
    """
    record = intent.read_record(pod)
    fabric = policy.document.fabrics.get(record.fabric) if policy is not None else None
    rails = record.rails or ()
    injected = injection.Injection(
        fabric=record.fabric,
        role=record.role,
        containers=record.containers,
        rails=rails,
        changes=(),
        warnings=(),
        pod=pod,
        networks=tuple(rank_contexts.parse_pod_networks(pod, pod.metadata.namespace) or ()),
        targets=tuple(
            index
            for index, container in enumerate(pod.spec.containers)
            if container.name in record.containers or not record.containers  # of a launcher it names none
        ),
        has_rails=bool(rails),
        resources=frozenset(
            rail.resource for rail in (fabric.rails if fabric else ()) if rail.resource and rail.name in rails
        ),
    )
    if policy is None or fabric is None:
        return _lint_pod(injected, rank_contexts.FabricUse(), ignored=record.added)
    return _lint_pod(injected, build_fabric_use(injected, policy.document))


def _lint_pod(
    injected: injection.Injection, use: rank_contexts.FabricUse, ignored: Collection[str] = ()
) -> tuple[reason.Reason, ...]:
    """Return the warnings about an injected pod. Variables in the `ignored` entries of its record are not reported."""
    pod, networks = injected.pod, injected.networks
    if len(injected.changes) > _MAX_CHANGES or _count_characters(pod, networks) > _MAX_SIZE:
        return _TOO_LARGE
    job = rank_contexts.JobContext(use=use, networks=networks, limited=True)
    warnings: dict[str, reason.Reason] = {}  # by line, because containers may share a name
    try:
        planned = _list_trusted_variables(injected, use)
        for index in injected.targets:
            container = pod.spec.containers[index]
            if not _may_report_variable(container, planned):
                continue
            if injected.has_rails:
                found = engine.check_ranks(rank_contexts.build_context(pod, index, job))
            else:
                found = _check_launcher(pod, index, use)
            fixable = [
                one for one in found if _can_author_fix(one, use, container) and f"env.{one.name}" not in ignored
            ]
            for warning in engine.list_warnings(fixable):
                located = warning.prefix_with(f"container {container.name}")
                warnings[located.line] = located
            if rank_contexts.has_unread_settings(container):
                located = _TOO_LONG.prefix_with(f"container {container.name}")
                warnings[located.line] = located
    except Exception as error:  # noqa: BLE001 - a failure of lint must not reject the pod
        message = f"railwright could not lint this pod ({type(error).__name__}); nothing else is affected"
        return (reason.Reason(AdmissionCode.LINT_FAILED, message),)
    return tuple(warnings.values())


def _list_trusted_variables(
    injected: injection.Injection, use: rank_contexts.FabricUse
) -> Collection[tuple[str, str | None]]:
    """Return name and value of each variable that the plan sets; () if lint must check these variables.

    Lint must check an interface other than eth0, which the pod may lack; a list of exclusive devices, of which the
    author may request fewer; and a variable of the policy's `env` that may contradict a derived value.
    """
    fabric = use.fabric
    if fabric is None:
        return ()
    is_certain = fabric.primary_interface == network_selection.CRI_INTERFACE or injected.pod.spec.host_network
    is_exclusive = rule_types.are_devices_exclusive(fabric.transport, use.resources)
    may_lack_devices = is_exclusive and not device_lists.DEVICE_LISTS.isdisjoint(dict(injected.planned))
    is_contradicted = any(fabric.env.get(name, harmless) != harmless for name, harmless in _SWITCHES.items())
    if not is_certain or may_lack_devices or is_contradicted:
        return ()
    return injected.planned


def _may_report_variable(container: views.Container, planned: Collection[tuple[str, str | None]]) -> bool:
    """True if a lint rule may report that a container sets or lacks a variable.

    The variables in `planned`, those of `_list_trusted_variables`, need no check.
    """
    settings = [(entry.name, entry.value) for entry in container.env if entry.name.startswith(commands.RELEVANT)]
    own = [name[: engine.LONGEST_NAME] for name, value in settings if (name, value) not in planned]
    words = (*(container.command or ()), *(container.args or ()))
    return (
        any(map(engine.find_rules, own))
        or network_rules.SOCKET not in dict(settings)
        or network_rules.IMAGE_WITH_PLUGIN in container.image
        or (bool(words) and commands.may_contain_settings(words))
    )


def _count_characters(pod: views.Pod, networks: Sequence[object]) -> int:
    """Return roughly how many characters of a pod lint reads, without variables, which have a limit of their own."""
    entries, characters = len(pod.spec.volumes) + len(networks), len(pod.metadata.annotations.get(names.NCCL_CONF, ""))
    for container in pod.spec.containers:
        entries += len(container.volume_mounts)
        length = sum(map(len, (*(container.command or ()), *(container.args or ()))))
        characters += length if length <= rank_contexts.MAX_COMMAND else 0
    return entries * _ENTRY_SIZE + characters


def _check_launcher(pod: views.Pod, index: int, use: rank_contexts.FabricUse) -> tuple[rule_types.Finding, ...]:
    """Return the findings about the settings that a launcher's mpirun command passes to its ranks."""
    settings = rank_contexts.limit_settings(rank_contexts.list_passed_settings(pod, index, rank_contexts.MAX_COMMAND))
    container = pod.spec.containers[index]
    is_benchmark = rank_contexts.read_command_settings(container, rank_contexts.MAX_COMMAND).is_benchmark
    ranks = rule_types.RankContext(
        container.name,
        settings,
        rank_contexts.build_fabric_context(use),
        devices=use.devices,
        is_benchmark=is_benchmark,
    )
    return engine.check_ranks(ranks) if settings else ()


def _can_author_fix(finding: rule_types.Finding, use: rank_contexts.FabricUse, container: views.Container) -> bool:
    """True for a finding about a variable, unless its value is a literal of the policy in `env` or in nccl.conf.

    The policy also determines capabilities, mounts and networks, so the author cannot fix findings about those.
    """
    literal = use.fabric.env.get(finding.name) if use.fabric else None
    in_env = finding.where.startswith("env[") and any(
        entry.name == finding.name and entry.value == literal for entry in container.env
    )
    return bool(finding.name) and (literal is None or not (in_env or finding.where.startswith("line ")))


def build_fabric_use(injected: injection.Injection, document: policies.PolicyDocument) -> rank_contexts.FabricUse:
    """Return the fabric and rails that the ranks of a pod use. A launcher's ranks run in other pods, with all rails."""
    fabric = document.fabrics[injected.fabric]
    if not injected.has_rails:
        return rank_contexts.build_full_use(document, fabric)
    rails = tuple([rail for rail in fabric.rails if rail.name in injected.rails])
    return rank_contexts.FabricUse(document, fabric, rails, injected.resources)
