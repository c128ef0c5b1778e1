"""Sets the fields of a pod's spec that its fabric needs: host network, DNS policy, runtime class and tolerations.

A value that the pod has itself is left unchanged (docs/interface.md 3). The API server writes `dnsPolicy: ClusterFirst`
into pods without one and leaves out `hostNetwork: false`, so these count as unset.
"""

from railwright.fabric import views
from railwright.fabric.injection import applied_pod, context, facts, pod_changes
from railwright.fabric.policy import model as policies
from railwright.fabric.reasons import reason as reasons
from railwright.fabric.reasons.codes import AdmissionCode

_UNSET = ("", None, False, "ClusterFirst")
_HOST_DNS = "ClusterFirstWithHostNet"


def set_fields(pod: applied_pod.AppliedPod, ctx: context.InjectionContext) -> pod_changes.Contribution:
    """Set the fields of the policy. Raises RefusedError if the namespace forbids the host network."""
    settings = ctx.fabric.pod
    if not ctx.role.rails or settings == policies.PodFields():
        return pod_changes.EMPTY
    if "pod" in ctx.options.skip:
        return pod_changes.Contribution(skipped={"pod": context.SKIPPED})
    if settings.host_network and (level := facts.find_level(ctx.known)):
        problem = facts.format_problem(ctx.known, level, "hostNetwork")
        message = f"{problem}, and fabric {ctx.fabric_name} is used there only; run the pod in a privileged namespace"
        raise reasons.RefusedError("pod-security", message)
    contributions = [_set_field(pod, ctx, name, value) for name, value in list_values(settings) if value]
    contributions += [_add_toleration(pod, ctx, toleration) for toleration in settings.tolerations]
    return pod_changes.merge(contributions)


def list_values(settings: policies.PodFields) -> tuple[tuple[str, str | bool | None], ...]:
    """Return the fields with one value: their names in the view of spec, and the values of the policy."""
    dns_policy = settings.dns_policy or (_HOST_DNS if settings.host_network else None)
    return (
        ("host_network", settings.host_network),
        ("dns_policy", dns_policy),
        ("runtime_class_name", settings.runtime_class_name),
    )


def _set_field(
    pod: applied_pod.AppliedPod, ctx: context.InjectionContext, name: str, value: pod_changes.FieldValue
) -> pod_changes.Contribution:
    current = getattr(pod.spec, name)
    change = pod_changes.SetField(
        entry=f"pod.{pod_changes.FIELDS[name]}",
        reason=f"fabric {ctx.fabric_name} sets it for its pods",
        name=name,
        value=value,
    )
    if current == value:
        return pod_changes.Contribution(entries=(change.entry,))
    if current not in _UNSET:
        own = reasons.make(AdmissionCode.FIELD_OF_POD, field=pod_changes.FIELDS[name], value=str(current))
        return pod_changes.Contribution(skipped={change.entry: own})
    return pod_changes.Contribution((change,), (change.entry,))


def _add_toleration(
    pod: applied_pod.AppliedPod, ctx: context.InjectionContext, toleration: policies.PodToleration
) -> pod_changes.Contribution:
    fields = {
        "key": toleration.key,
        "operator": toleration.operator,
        "value": toleration.value,
        "effect": toleration.effect,
    }
    own = views.Toleration(**{name: text for name, text in fields.items() if text})
    change = pod_changes.AddToleration(
        entry=f"pod.tolerations.{toleration.key}",
        reason=f"nodes of fabric {ctx.fabric_name} have this taint",
        added={name: text for name, text in fields.items() if text},
    )
    has_it = own in (pod.spec.tolerations or ())
    return pod_changes.Contribution(() if has_it else (change,), (change.entry,))
