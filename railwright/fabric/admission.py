"""Plans the injection of a pod, and lints the pod that results. The two know nothing of each other."""

import msgspec

from railwright.fabric import views
from railwright.fabric.injection import facts, template_plan, templates
from railwright.fabric.injection import plan as injection
from railwright.fabric.lint import admission as lint
from railwright.fabric.lint import fabric_context
from railwright.fabric.policy import model as policies
from railwright.fabric.reasons import reason

_MAX_CHANGES = 512  # of a pod that is linted: the API server waits, and no real pod gets so many


def plan(pod: views.Pod, policy: policies.Policy, cluster: facts.ClusterFacts) -> injection.Outcome:
    """Return the plan of a pod, with the warnings of lint. Never raises because of the pod's content."""
    outcome = injection.plan(pod, policy, cluster)
    if not isinstance(outcome, injection.Injection):
        return outcome
    return _add_warnings(outcome, lint_injected(outcome, policy))


def plan_template(
    template: templates.Template, policy: policies.Policy, cluster: facts.ClusterFacts, workload_name: str
) -> template_plan.TemplatePlan | injection.Refusal:
    """Return the plan of a pod template, with the warnings of lint. `workload_name` is used in messages."""
    outcome = template_plan.plan_template(template, policy, cluster, workload_name)
    if isinstance(outcome, injection.Refusal) or outcome.injection is None:
        return outcome
    warnings = lint_injected(outcome.injection, policy)
    if not outcome.is_enforced:
        warnings = injection.locate_unenforced(warnings)
    return msgspec.structs.replace(
        outcome,
        warnings=outcome.warnings + template_plan.locate(template, warnings),
        injection=_add_warnings(outcome.injection, warnings),
    )


def lint_injected(injected: injection.Injection, policy: policies.Policy) -> tuple[reason.Reason, ...]:
    """Return the warnings of lint about a pod after its injection."""
    if len(injected.changes) > _MAX_CHANGES:
        return lint.TOO_LARGE
    use, is_launcher = find_use(injected, policy.document), not injected.has_rails
    return lint.list_warnings(injected.pod, injected.networks, use, injected.targets, is_launcher=is_launcher)


def find_use(injected: injection.Injection, document: policies.PolicyDocument) -> fabric_context.FabricUse:
    """Return what the ranks of a pod use of its fabric. Those of a launcher run in other pods, with all rails."""
    fabric = document.fabrics[injected.fabric]
    if not injected.has_rails:
        return fabric_context.use_all_rails(document, fabric)
    rails = tuple([rail for rail in fabric.rails if rail.name in injected.rails])
    return fabric_context.FabricUse(document, fabric, rails, injected.resources)


def _add_warnings(injected: injection.Injection, warnings: tuple[reason.Reason, ...]) -> injection.Injection:
    return msgspec.structs.replace(injected, warnings=injected.warnings + warnings) if warnings else injected
