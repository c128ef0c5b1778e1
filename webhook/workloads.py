"""POST /mutate/workloads: a review of a workload -> the review that answers it, devices and mounts in its templates.

Owns which reviews concern us, which templates of an update do, and how the plans of several templates become one
answer. What a template gets is `railwright.fabric.injection.template_plan`'; whether an update of a template that
cannot change only lacks what was added at creation is `railwright.fabric.injection.stored_templates`'.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import msgspec

from railwright.fabric import names
from railwright.fabric.injection import facts, keys, kinds, model, opt_in, stored_templates, template_plan, templates
from railwright.fabric.policy import model as policies
from webhook import answer, patch, wire

_FORBIDDEN = 403
_MAX_MESSAGE = 4096  # characters: names in it are the user's, and not checked yet
_MOST_TEMPLATES = 512  # equipped in one workload: each is planned like a pod, and the API server waits
_MAX_AUDIT = 1024  # characters of an audit annotation
_NULL = (b"", b"null")
_NO_TEMPLATES: Mapping[str, templates.Template] = {}
_NO_POLICY = (
    "railwright has no policy in force yet: no devices are added to the templates, and their pods are refused until it "
    "has one; if it is not just starting, the operator sees why with `railwright check`"
)

FactsOf = Callable[[str], facts.Facts]


class _Asked(msgspec.Struct, frozen=True):
    """A review of a workload, read."""

    request: wire.WorkloadRequest
    workload: templates.Workload
    before: templates.Workload | None
    applied: Mapping[str, templates.Template] = {}  # of the manifest that kubectl applied before, by title

    @property
    def title(self) -> str:
        """How messages name the workload; at admission it may have no name yet."""
        metadata = self.workload.metadata
        name = metadata.name or f"{metadata.generate_name}*"
        return f"{self.workload.kind.name} {self.request.namespace}/{name}"


def handle(body: bytes, policy: policies.Policy | None, facts_of: FactsOf) -> answer.Answer:
    """The answer. Raises wire.MalformedError for what is no review of a workload of ours."""
    request = wire.read_workload(body)
    kind = _kind(request.kind)
    if request.operation not in {"CREATE", "UPDATE"} or request.sub_resource:
        return _answer(request, kind)
    asked = _read(request, kind)
    known = facts_of(request.namespace)
    if request.operation == "UPDATE" and kind.frozen:
        return _immutable(asked, policy, known)
    concerned = templates.changed(asked.workload, asked.before)
    if policy is None:
        return _without_policy(asked, concerned, known)
    planned, equipped = [], 0
    for template in concerned:
        outcome = template_plan.plan_for(template, policy, known, asked.title)
        if isinstance(outcome, model.Refusal):
            return _refused(request, kind, outcome)
        planned.append(outcome)
        equipped += outcome.injection is not None
        if equipped > _MOST_TEMPLATES:
            return _refused(request, kind, _too_many(asked))
    return _planned(asked, planned)


def _kind(given: wire.GroupVersionKind) -> kinds.Kind:
    kind = kinds.find(given.group, given.version, given.kind)
    if kind is None:
        told = model.quoted("/".join(part for part in (given.group, given.version, given.kind) if part))
        allowed = model.listed(
            f"{each.group}/{version}/{each.name}" for each in kinds.KINDS for version in each.versions
        )
        raise wire.MalformedError(
            f"request.kind is {told}, whose pod templates railwright does not know; remove it from the rules of the "
            f"webhook configuration that sends it: this path takes {allowed}"
        )
    return kind


def _read(request: wire.WorkloadRequest, kind: kinds.Kind) -> _Asked:
    if bytes(request.object) in _NULL:
        raise wire.MalformedError(f"request.object is missing; {request.operation} has one")
    try:
        workload = templates.read(kind, bytes(request.object))
        before, applied = None, _NO_TEMPLATES
        if request.operation == "UPDATE" and bytes(request.old_object) not in _NULL:
            before = templates.read(kind, bytes(request.old_object))
            applied = stored_templates.applied_templates(before) if kind.frozen else applied
    except templates.UnreadableError as error:
        raise wire.MalformedError(f"the {kind.name} does not decode: {error}") from None
    return _Asked(request, workload, before, applied)


def _too_many(asked: _Asked) -> model.Refusal:
    message = (
        f"{asked.title}: more than {_MOST_TEMPLATES} of its templates opt in to a fabric; "
        "set `replicas` where templates are alike, or make several workloads of it"
    )
    return model.Refusal("", "templates", message)


def _planned(asked: _Asked, planned: Sequence[template_plan.Planned]) -> answer.Answer:
    operations = [operation for each in planned for operation in _operations(each.template, each.changes)]
    injections = [each.injection for each in planned if each.injection is not None]
    changes = sum(len(each.changes) for each in planned)
    audit = {"fabric": ",".join(sorted({each.fabric for each in injections})), "changes": str(changes)}
    warnings = [warning for each in planned for warning in each.warnings]
    return _answer(
        asked.request,
        asked.workload.kind,
        operations=operations,
        warnings=(*keys.above(asked.workload, asked.before), *warnings, *_outvoted(asked)),
        audit=audit if injections else {},
    )


def _operations(template: templates.Template, changes: Sequence[model.AnyChange]) -> list[patch.Operation]:
    """The operations of one template, where it is in the workload."""
    made = patch.operations(template.pod, changes, template.pointer)
    if template.written.metadata is None and any(isinstance(change, model.SetLabel) for change in changes):
        return [{"op": "add", "path": f"{template.pointer}/metadata", "value": {}}, *made]
    return made


def _outvoted(asked: _Asked) -> Iterator[str]:
    """Templates whose own label keeps a changed label of the workload from counting: we may have copied it there."""
    if asked.before is None or asked.workload.label == asked.before.label:
        return
    for template in asked.workload.templates:
        own = template.pod.metadata.labels.get(names.FABRIC)
        if own is not None and own != asked.workload.label:
            yield (
                f"{template.title}: its own label {names.FABRIC} {model.quoted(own)} wins over that of the "
                f"{asked.workload.kind.name}, which changed; change it there too"
            )


def _immutable(asked: _Asked, policy: policies.Policy | None, known: facts.Facts) -> answer.Answer:
    """An update of a workload whose templates cannot change.

    A template that only lacks what was added at creation becomes the stored one again, so that `kubectl apply` of the
    author's unchanged manifest succeeds. Any other change is left to the API of the kind to refuse.
    """
    restored, warnings = [], []
    devices = _devices(policy, known)
    for stored, template in _changed_templates(asked):
        if _lacks_only_additions(asked, template, stored, devices, known):
            restored.append((template, stored))
        elif policy is not None and _lacks(template, policy, known) and not _lacks(stored, policy, known):
            warnings.append(
                f"{template.title}: the template of a {asked.workload.kind.name} cannot change, and this update "
                "changes more than to leave out what railwright added at creation; undo the other changes, or delete "
                f"the {asked.workload.kind.name} and create it anew"
            )
    operations = [
        {"op": "replace", "path": template.pointer, "value": msgspec.Raw(stored.raw)} for template, stored in restored
    ]
    audit = {"restored": model.bounded(model.listed(each.title for each, _ in restored), _MAX_AUDIT)}
    return _answer(
        asked.request,
        asked.workload.kind,
        operations=operations,
        warnings=warnings,
        audit=audit if restored else {},
    )


def _changed_templates(asked: _Asked) -> Iterator[tuple[templates.Template, templates.Template]]:
    """Stored template and template of the update, for those that differ and that railwright may have added to."""
    if asked.before is None:
        return
    old = {each.title: each for each in asked.before.templates}
    for template in templates.changed(asked.workload, asked.before)[:_MOST_TEMPLATES]:
        if template.title in old:
            yield old[template.title], template


def _lacks_only_additions(
    asked: _Asked,
    template: templates.Template,
    stored: templates.Template,
    devices: Collection[str],
    known: facts.Facts,
) -> bool:
    if not opt_in.may_opt_in(template_plan.future(stored), known.namespace_labels):
        return False
    applied = asked.applied.get(template.title)
    return stored_templates.lacks_only_additions(template, stored, applied, devices)


def _devices(policy: policies.Policy | None, known: facts.Facts) -> Collection[str]:
    """The resources that templates get under the policy in force; accelerators are the author's own."""
    if policy is None:
        return frozenset()
    document = policy.document
    of_rails = {rail.resource for fabric in document.fabrics.values() for rail in fabric.rails if rail.resource}
    of_networks = {resource for resource in (known.networks or {}).values() if resource}
    return (of_rails | of_networks) - set(document.accelerators)


def _lacks(template: templates.Template, policy: policies.Policy, known: facts.Facts) -> bool:
    planned = template_plan.plan_for(template, policy, known, "")
    return isinstance(planned, template_plan.Planned) and bool(planned.changes)


def _without_policy(asked: _Asked, concerned: Sequence[templates.Template], known: facts.Facts) -> answer.Answer:
    """Before a first policy was read only labels are copied: without them the pods would run without their network."""
    operations = [each for template in concerned for each in _operations(template, template_plan.copied(template))]
    waiting = any(opt_in.may_opt_in(template_plan.future(each), known.namespace_labels) for each in concerned)
    warnings = (_NO_POLICY,) if waiting else ()
    return _answer(asked.request, asked.workload.kind, operations=operations, warnings=warnings)


def _answer(
    request: wire.WorkloadRequest,
    kind: kinds.Kind,
    *,
    operations: Sequence[patch.Operation] = (),
    warnings: Sequence[str] = (),
    audit: dict[str, str] | None = None,
) -> answer.Answer:
    verdict = wire.Verdict(operations=operations, warnings=warnings, audit=audit or {})
    return answer.Answer(
        body=wire.write(request.uid, verdict),
        outcome=answer.PATCHED if operations else answer.ALLOWED,
        kind=kind.title,
        operations=len(operations),
        warnings=len(warnings),
        dry_run=bool(request.dry_run),
    )


def _refused(request: wire.WorkloadRequest, kind: kinds.Kind, refusal: model.Refusal) -> answer.Answer:
    told = model.bounded(refusal.message, _MAX_MESSAGE)
    audit = {"fabric": refusal.fabric or "unknown", "refused": refusal.reason}
    verdict = wire.Verdict(allowed=False, code=_FORBIDDEN, message=told, audit=audit)
    return answer.Answer(
        body=wire.write(request.uid, verdict),
        outcome=answer.REFUSED,
        kind=kind.title,
        fabric=refusal.fabric,
        reason=refusal.reason,
        dry_run=bool(request.dry_run),
    )
