"""Pod + policy + facts -> everything to be done to the pod, or why not. The one entry to injection.

Owns the order of the concerns and the naming of the pod in refusals. Pure: the same three values give the same plan,
and a pod that has been through it once gets no change the second time.
"""

from collections.abc import Mapping

from railwright.fabric import names, views
from railwright.fabric.injection import (
    accelerators,
    attachments,
    devices,
    environment,
    facts,
    keys,
    model,
    mounts,
    opt_in,
    preflight,
    record,
    roles,
    security,
    wishes,
)
from railwright.fabric.injection import aim as aims
from railwright.fabric.lint import admission
from railwright.fabric.policy import model as policies

_ORDER: Mapping[type[model.Change], int] = {  # pod, then containers from the outside in
    model.SetAnnotation: 0,
    model.AddResource: 1,
    model.AddVolume: 2,
    model.AddMount: 2,
    model.AddInitContainer: 2,
    model.AddCapability: 3,
    model.SetPrivileged: 3,
    model.SetEnv: 4,
    model.UnsetEnv: 5,  # last, because it moves the entries behind it
}

Outcome = model.Injection | model.Refusal | model.NotOptedIn


def plan(pod: views.Pod, policy: policies.Policy, known: facts.Facts, called: str = "") -> Outcome:
    """What the pod needs; `called` names it in a refusal, "" by its own name. Never raises for what a pod holds."""
    fabric = ""
    try:
        name = opt_in.fabric_of(pod, policy.document, known)
        if name is None:
            return model.NotOptedIn(keys.of_pod(pod.metadata))
        fabric = name
        record.check_given(pod)
        return _injection(aims.take(pod, policy, known, name, wishes.read(pod)))
    except model.RefusedError as error:
        message = f"{called or 'Pod ' + title(pod, known.namespace)}: {error.message}"
        return model.Refusal(fabric, error.reason, message, _role(pod, policy))


def title(pod: views.Pod, namespace: str) -> str:
    """How messages name a pod; at admission it may have no name yet."""
    metadata = pod.metadata
    return f"{namespace}/{metadata.name or metadata.generate_name + '*'}"


def _role(pod: views.Pod, policy: policies.Policy) -> str:
    """The word of a refused pod's role, "" where its containers do not tell whether they compute."""
    try:
        computing = accelerators.accelerated(pod, policy.document.accelerators)
    except model.RefusedError:
        return ""
    return roles.role_of(pod, policy.document.roles, accelerated=bool(computing)).word


def _injection(aim: aims.Aim) -> model.Injection:
    attached = attachments.attach(aim)
    parts = [
        attached.part,
        devices.request(aim, attached.selections),
        mounts.mount(aim),
        security.grant(aim),
        *environment.set_for(aim),
    ]
    part = model.join((*parts, preflight.check(aim, attached.selections, parts), _bystander(aim)))
    advice = admission.warnings(aim, part.changes)
    written, warnings = record.write(aim, part)
    return model.Injection(
        fabric=aim.fabric_name,
        role=aim.role.word,
        containers=tuple(aim.container(index).name for index in aim.targets) if aim.role.rails else (),
        rails=tuple(chosen.name for chosen in aim.rails),
        changes=(*sorted(part.changes, key=lambda change: _ORDER[type(change)]), *written),
        warnings=keys.of_pod(aim.pod.metadata) + part.warnings + warnings + advice,
    )


def _bystander(aim: aims.Aim) -> model.Part:
    """Why a pod without rails has none; also to an author who named containers for them."""
    if aim.role.rails:
        return model.NOTHING
    written = aim.pod.metadata.annotations.get(names.CONTAINERS)
    warnings = []
    if written is not None:
        warnings.append(
            f"annotation {names.CONTAINERS} {model.some([repr(written)])} gives no container the fabric: "
            f"{aim.role.why}; if one is a rank, request an accelerator in it"
        )
    return model.Part(skipped={"rails": aim.role.why}, warnings=tuple(warnings))
