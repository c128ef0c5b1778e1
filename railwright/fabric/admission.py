"""Plans the injection of a pod, and lints the pod that results. The two know nothing of each other."""

import msgspec

from railwright.fabric import views
from railwright.fabric.injection import facts, pod_changes, template_plan, templates
from railwright.fabric.injection import plan as injection
from railwright.fabric.lint import admission as lint
from railwright.fabric.lint import fabric_context
from railwright.fabric.policy import model as policies
from railwright.fabric.reasons import rendering

_MAX_CHANGES = 512  # of a pod that is linted: the API server waits, and no real pod gets so many


def plan(pod: views.Pod, policy: policies.Policy, cluster: facts.ClusterFacts) -> injection.Outcome:
    """Return the plan of a pod, with the warnings of lint. Never raises because of the pod's content."""
    outcome = injection.plan(pod, policy, cluster)
    if not isinstance(outcome, pod_changes.Injection):
        return outcome
    return _add_warnings(outcome, lint_injected(outcome, policy))


def plan_template(
    template: templates.Template, policy: policies.Policy, cluster: facts.ClusterFacts, workload_name: str
) -> template_plan.TemplatePlan | pod_changes.Refusal:
    """Return the plan of a pod template, with the warnings of lint. `workload_name` is used in messages."""
    outcome = template_plan.plan_template(template, policy, cluster, workload_name)
    if isinstance(outcome, pod_changes.Refusal) or outcome.injection is None:
        return outcome
    warnings = lint_injected(outcome.injection, policy)
    if not outcome.is_enforced:
        warnings = injection.locate_unenforced(warnings)
    return msgspec.structs.replace(
        outcome,
        warnings=outcome.warnings + template_plan.locate(template, warnings),
        injection=_add_warnings(outcome.injection, warnings),
    )


def lint_injected(injected: pod_changes.Injection, policy: policies.Policy) -> tuple[rendering.Message, ...]:
    """Return the warnings of lint about a pod after its injection."""
    if len(injected.changes) > _MAX_CHANGES:
        return lint.TOO_LARGE
    return lint.list_warnings(_describe(injected), policy)


def find_use(injected: pod_changes.Injection, document: policies.PolicyDocument) -> fabric_context.FabricUse:
    """Return what the ranks of a pod use of its fabric."""
    all_rails = fabric_context.use_all_rails(document, document.fabrics[injected.fabric])
    return lint.find_use(_describe(injected), all_rails)


def _describe(injected: pod_changes.Injection) -> lint.InjectedPod:
    return lint.InjectedPod(
        pod=injected.pod,
        networks=injected.networks,
        fabric_name=injected.fabric,
        rails=injected.rails,
        resources=injected.resources,
        containers=injected.targets,
        is_launcher=not injected.has_rails,
    )


def _add_warnings(injected: pod_changes.Injection, warnings: tuple[rendering.Message, ...]) -> pod_changes.Injection:
    return msgspec.structs.replace(injected, warnings=injected.warnings + warnings) if warnings else injected
