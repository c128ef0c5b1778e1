"""Plans the changes of a pod template: the devices, claims and mounts in the plan of its pods.

Quotas, queues and PodGroups count the devices of templates. A pod gets the other changes at its own admission from the
same plan, so nothing is added twice (docs/interface.md 3). If the templates of a kind are immutable, an updated
template is compared with the stored one.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from railwright.fabric import intent, names, quantity, views
from railwright.fabric.claims import claim_templates
from railwright.fabric.injection import accelerators, claim_requests, devices, drafts, facts, opt_in, plan, templates
from railwright.fabric.policy import model as policies
from railwright.fabric.reasons import reason as reasons
from railwright.fabric.reasons.codes import AdmissionCode

# Refusals that may not apply when the pod is created: package managers create custom resources such as networks after
# the workload, and a new namespace may not be observed yet.
_TEMPORARY = frozenset({"missing-network", "namespace-unknown"})


class TemplatePlan(msgspec.Struct, frozen=True):
    """The plan of a template, with the plan of the pods that are created from it.

    `injection` is None if the pods did not opt in, would be rejected, or can be planned only when they are created.
    """

    template: templates.Template
    changes: tuple[drafts.Change, ...]
    warnings: tuple[reasons.Reason, ...] = ()
    injection: plan.Injection | None = None
    is_enforced: bool = True  # in mode `warn` the template is not changed


def plan_template(
    template: templates.Template, policy: policies.Policy, cluster: facts.ClusterFacts, workload_name: str
) -> TemplatePlan | plan.Refusal:
    """Return the plan of the template, or a refusal if its pods would be rejected.

    The message of a refusal begins with `workload_name`.
    """
    pod = build_pod(template)
    cluster = msgspec.structs.replace(
        cluster, job_accelerated=accelerators.has_accelerator(template.requested, policy.document.accelerators)
    )
    outcome = plan.plan_pod(pod, policy, cluster, f"{workload_name}: {template.title}", written=template.pod)
    match outcome:
        case plan.NotOptedIn(warnings=warnings):
            return TemplatePlan(template, build_label_changes(template), locate_warnings(template, warnings))
        case plan.Injection() | plan.Refusal() if not policy.document.is_enforced:
            injection = outcome if isinstance(outcome, plan.Injection) else None
            warnings = locate_warnings(template, plan.describe_unenforced(outcome))
            return TemplatePlan(template, (), warnings, injection, is_enforced=False)
        case plan.Refusal(reason=reason, message=message) if reason in _TEMPORARY:
            rejected = reasons.Reason(AdmissionCode.PODS_REJECTED, f"{message}; pods are rejected until this is solved")
            return TemplatePlan(template, build_label_changes(template), (rejected,))
        case plan.Refusal(reason=opt_in.UNKNOWN_FABRIC) if template.inherited == template.label:
            # The label is on the workload, so the message must not name the template.
            message = outcome.message.replace(f"{workload_name}: {template.title}: ", f"{workload_name}: ", 1)
            return msgspec.structs.replace(outcome, message=message)
        case plan.Refusal():
            return outcome
        case plan.Injection():
            changes = build_label_changes(template) + tuple(
                change for change in outcome.changes if _belongs_to_template(change)
            )
            return TemplatePlan(template, changes, locate_warnings(template, outcome.warnings), outcome)


def locate_warnings(template: templates.Template, warnings: Iterable[reasons.Reason]) -> tuple[reasons.Reason, ...]:
    """Return the warnings, each with the path of the template before its message."""
    return tuple([warning.prefix_with(template.title) for warning in warnings])


def build_label_changes(template: templates.Template) -> tuple[drafts.Change, ...]:
    """Return the change that copies the inherited label into the template; () if the template has its own label."""
    if template.inherited is None or names.FABRIC in template.pod.metadata.labels:
        return ()
    draft = drafts.Draft(template.pod)
    draft.set_label(names.FABRIC, template.inherited, "")
    return tuple(draft.changes)


def build_pod(template: templates.Template) -> views.Pod:
    """Return the pod that the controller will create from the template, with all fields that injection reads."""
    pod = template.pod
    added = template.origin.metadata
    labels = {**pod.metadata.labels, **added.labels}
    if template.label is not None:
        labels[names.FABRIC] = template.label
    metadata = msgspec.structs.replace(pod.metadata, labels_or_none=labels)
    if not added.env and not added.volumes:
        return msgspec.structs.replace(pod, metadata=metadata)
    variables = [views.EnvVar(name=name, value="") for name in added.env]
    mounts = [
        views.VolumeMount(name=volume.name, mount_path=volume.mount_path)
        for volume in added.volumes
        if volume.mount_path
    ]
    containers = [
        msgspec.structs.replace(
            container,
            env_or_none=[*container.env, *variables] if variables else container.env_or_none,
            volume_mounts_or_none=[*container.volume_mounts, *mounts] if mounts else container.volume_mounts_or_none,
        )
        for container in pod.spec.containers
    ]
    claims = {volume.name: views.Volume(name=volume.name) for volume in added.volumes}
    volumes = [volume for volume in pod.spec.volumes if volume.name not in claims]
    spec = msgspec.structs.replace(
        pod.spec,
        containers_or_none=containers,
        volumes_or_none=[*volumes, *claims.values()] if claims else pod.spec.volumes_or_none,
    )
    return msgspec.structs.replace(pod, metadata=metadata, spec=spec)


def _belongs_to_template(change: drafts.Change) -> bool:
    """True for devices, claims and mounts, which quotas and schedulers count.

    Such changes precede others of the same lists and maps, so their operations create the parents that they need.
    """
    entry = change.entry
    return entry in {claim_requests.ENTRY, "devices"} or entry.startswith(("resources.", "mounts."))


# --- templates that are immutable (docs/interface.md 3.5) ---------------------------------------------------------
# `kubectl apply` and `kubectl replace` send lists as they are in the author's manifest, without the devices and mounts
# that railwright added at creation. Additions are: railwright's volumes and their mounts by name, the label copied from
# the workload, annotations of its topology, claims that name its templates, and devices. GPUs that such a claim
# replaced are missing in the stored template. A device is an addition if the policy or a network names its resource
# now, or if the manifest that was applied last does not request it.

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"  # kubectl's own annotation: the manifest as JSON
_KEYS = ("requests", "limits")

Tree = dict[str, Any]


class _ReducedTemplate(msgspec.Struct, frozen=True):
    """A template without railwright's additions to its lists and metadata, with the resources of its containers.

    `claimed` is the number of GPUs in railwright's claims of each container, by name.
    """

    tree: Tree
    resources: Mapping[str, Tree]
    claimed: Mapping[str, int]


def lacks_only_additions(
    template: templates.Template,
    stored: templates.Template,
    applied: templates.Template | None,
    resources: Collection[str],
) -> bool:
    """True if an updated template differs from the stored one only by the lack of railwright's additions.

    `applied` is the template in the manifest that kubectl applied to the stored object, or None. `resources` are the
    devices that railwright may have added under the current policy and networks.
    """
    if template.label != stored.label:
        return False
    topology = {*intent.read_topology(stored.pod).annotations} - template.pod.metadata.annotations.keys()
    keys, spec = {names.FABRIC, names.TOPOLOGY, *topology}, template.pod.spec
    mounts = [mount for container in spec.containers for mount in container.volume_mounts]
    written = {entry.name for entry in (*spec.volumes, *(spec.resource_claims or ()), *mounts)}
    new, old = (_remove_additions(one.origin.template, keys, written) for one in (template, stored))
    manifest = {} if applied is None else _remove_additions(applied.origin.template, keys, written).resources
    return new.tree == old.tree and all(
        _lacks_only_devices(new.resources[name], own, manifest.get(name), resources, old.claimed[name])
        for name, own in old.resources.items()
    )


def read_applied_templates(workload: templates.Workload) -> Mapping[str, templates.Template]:
    """Return the templates of the manifest that kubectl applied to a workload, by title. {} if it cannot be read."""
    manifest = workload.metadata.annotations.get(LAST_APPLIED)
    if manifest is None:
        return {}
    try:
        workload_manifest = templates.read_workload(workload.kind, msgspec.json.decode(manifest))
    except (ValueError, RecursionError):
        return {}
    return {template.title: template for template in workload_manifest.templates}


def _remove_additions(template: Tree, keys: Collection[str], written: Collection[str]) -> _ReducedTemplate:
    """Return a template without railwright's additions except devices. `keys` are railwright's labels and annotations.

    Volumes and claims in `written` are those of the author, whatever their names. The types are those of the views,
    because the template was decoded as a view before.
    """
    metadata, spec = {**(template.get("metadata") or {})}, {**(template.get("spec") or {})}
    for field in ("labels", "annotations"):
        metadata[field] = {key: value for key, value in (metadata.get(field) or {}).items() if key not in keys}
    entries = spec.get("resourceClaims") or []
    claims = {
        claim.get("name", ""): gpus
        for claim in entries
        if claim.get("name", "") not in written
        and (gpus := claim_templates.read_gpu_count(claim.get("resourceClaimTemplateName") or "")) is not None
    }
    spec["resourceClaims"] = [claim for claim in entries if claim.get("name", "") not in claims]
    spec["volumes"] = _list_authored(spec.get("volumes"), written)
    containers, resources, claimed = [], {}, {}
    for container in spec.get("containers") or []:
        name, needs = container.get("name", ""), {**(container.get("resources") or {})}
        used = needs.pop("claims", None) or []
        resources[name] = {key: needs.pop(key, None) or {} for key in _KEYS}
        claimed[name] = next((gpus for claim in used if (gpus := claims.get(claim.get("name", "")))), 0)
        needs["claims"] = [claim for claim in used if claim.get("name", "") not in claims]
        mounts = _list_authored(container.get("volumeMounts"), written)
        containers.append({**container, "resources": needs, "volumeMounts": mounts})
    return _ReducedTemplate(
        {**template, "metadata": metadata, "spec": {**spec, "containers": containers}}, resources, claimed
    )


def _list_authored(entries: Sequence[Tree] | None, written: Collection[str]) -> list[Tree]:
    """Return the volumes or mounts that the author wrote: those named in `written`, or without railwright's prefix."""
    return [
        entry
        for entry in entries or ()
        if entry.get("name") in written or not entry.get("name", "").startswith(names.VOLUME_PREFIX)
    ]


def _lacks_only_devices(new: Tree, old: Tree, manifest: Tree | None, resources: Collection[str], claimed: int) -> bool:
    """True if the resources of a container differ only in added devices, or in GPUs that moved to claims.

    railwright sets both request and limit of a device. It never sets "0", with which an author opts out.
    """
    for resource in {name for tree in (new, old) for key in _KEYS for name in tree[key]}:
        wanted, present = ([tree[key].get(resource) for key in _KEYS] for tree in (new, old))
        if wanted == present:
            continue
        amount = _parse_amount(present[0])
        if "/" in resource and present == [None, None] and claimed:
            is_addition = {_parse_amount(text) for text in wanted if text is not None} == {claimed}
        else:
            is_addition = (
                amount is not None
                and amount > 0
                and amount == _parse_amount(present[1])
                and ("/" in resource or resource.startswith(devices.HUGE_PAGES))
                and (resource in resources or (manifest is not None and _requests_less(manifest, resource, amount)))
                and _requests_less(new, resource, amount)
            )
        if not is_addition:
            return False
    return True


def _requests_less(tree: Tree, resource: str, amount: int) -> bool:
    """True if a container requests less of a resource than `amount`, or lacks its request or its limit.

    "0" is an opt-out and does not count as a smaller amount.
    """
    amounts = [_parse_amount(tree[key][resource]) for key in _KEYS if resource in tree[key]]
    readable = [value for value in amounts if value is not None and 0 < value <= amount]
    return len(readable) == len(amounts) and (len(amounts) < len(_KEYS) or min(readable) < amount)


def _parse_amount(text: Any) -> int | None:
    try:
        return None if text is None else quantity.parse_units(text)
    except quantity.InvalidQuantityError:
        return None
