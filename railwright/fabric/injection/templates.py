"""Reads the pod templates of a workload, each with its path, its inherited label and its controller's additions.

Also compares the templates of an update with those of the stored object.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from railwright.fabric import names, views
from railwright.fabric.injection import accelerators
from railwright.fabric.workloads import frameworks, registry

_MAX_NAME = 63  # characters of a member's name; Kubernetes allows no longer names

UNREADABLE = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)
_ANYTHING = msgspec.json.Decoder()
_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw] | list[msgspec.Raw] | None)


class UnreadableError(ValueError):
    """Raised for a workload that cannot be decoded. The text names the path."""


class TooManyEntriesError(UnreadableError):
    """Raised for a workload whose lists have too many entries to read. The text names the workload and the fix."""


class PodTemplate(views.View, frozen=True):
    """A pod template as its author wrote it."""

    metadata: views.ObjectMeta | None = None
    spec: views.PodSpec | None = None


class Template(msgspec.Struct, frozen=True):
    """One template of a workload, with its path and its controller's additions."""

    pointer: str  # JSON pointer of the template
    title: str  # path of the template in messages
    raw: bytes
    written: PodTemplate
    inherited: str | None  # the opt-in label of the closest parent
    context: frameworks.TemplateContext
    added: frameworks.ControllerMetadata
    above: Sequence[tuple[str, views.ObjectMeta]] = ()  # path and metadata of its parents, outermost first
    path: frameworks.TemplatePath = frameworks.TemplatePath(())
    requested: frozenset[str] = frozenset()  # by the containers of all templates: `accelerators.list_all_requested`

    @property
    def pod(self) -> views.Pod:
        """Return the template as a view of a pod."""
        return views.Pod(metadata=self.written.metadata or _NO_METADATA, spec=self.written.spec or _NO_SPEC)

    @property
    def label(self) -> str | None:
        """Return the opt-in label of the pods made from this template: its own, or the one that they inherit."""
        return self.pod.metadata.labels.get(names.FABRIC, self.inherited)

    def find_origin(self, tree: Any) -> frameworks.TemplateOrigin:
        """Return the template in its object, which is plain data."""
        steps: list[str | int] = []
        ancestors = [tree]
        for step in frameworks.split_pointer(self.pointer):
            steps.append(int(step) if isinstance(ancestors[-1], list) else step)
            ancestors.append(ancestors[-1][steps[-1]])
        return frameworks.TemplateOrigin(self.context, self.added, tuple(steps), ancestors, self.path)


class Workload(msgspec.Struct, frozen=True):
    """A workload with its templates."""

    kind: frameworks.WorkloadKind
    metadata: views.ObjectMeta
    templates: tuple[Template, ...]

    @property
    def label(self) -> str | None:
        """Return the opt-in label of the object itself."""
        return self.metadata.labels.get(names.FABRIC)


class _Root(views.View, frozen=True):
    metadata: views.ObjectMeta | None = None
    spec: msgspec.Raw = msgspec.Raw()


class _Labelled(views.View, frozen=True):
    metadata: views.ObjectMeta | None = None


_ROOT = msgspec.json.Decoder(_Root)
_LABELLED = msgspec.json.Decoder(_Labelled)
_TEMPLATE = msgspec.json.Decoder(PodTemplate | None)
_SPECS = {view: msgspec.json.Decoder(view | None) for kind in registry.KINDS if (view := kind.spec_view) is not None}
_NO_METADATA, _NO_SPEC = views.ObjectMeta(), views.PodSpec()


def read(kind: frameworks.WorkloadKind, body: bytes) -> Workload:
    """Return the workload in a JSON document. Raises UnreadableError, and TooManyEntriesError before reading them."""
    root: _Root = _decode(_ROOT, body, "")
    metadata = root.metadata or _NO_METADATA
    start = frameworks.TemplateContext(metadata.name or metadata.generate_name, "", 0, _read_spec(kind, root.spec))
    entries = itertools.chain.from_iterable(_walk(body, site.path, _WalkState(site, start)) for site in kind.templates)
    read_entries = list(itertools.islice(entries, frameworks.MAX_ENTRIES + 1))
    if len(read_entries) > frameworks.MAX_ENTRIES:
        if metadata.labels.get(names.FABRIC) == names.FABRIC_NONE:
            return Workload(kind, metadata, ())
        raise TooManyEntriesError(
            f"{kind.name} {metadata.name or f'{metadata.generate_name}*'}: its lists have more than "
            f"{frameworks.MAX_ENTRIES} entries for pod templates; use `replicas` for equal templates, split it into "
            f"several workloads, or opt out with label {names.FABRIC}: {names.FABRIC_NONE}"
        )
    templates = [template for template in read_entries if template is not None]
    pod_specs = [template.written.spec for template in templates if template.written.spec is not None]
    requested = accelerators.list_all_requested(container for spec in pod_specs for container in spec.containers)
    return Workload(
        kind, metadata, tuple([msgspec.structs.replace(template, requested=requested) for template in templates])
    )


def _read_spec(kind: frameworks.WorkloadKind, raw: msgspec.Raw) -> Any:
    """Return the view of the spec that the kind declares, None if it declares none."""
    if kind.spec_view is None:
        return None
    return (_decode(_SPECS[kind.spec_view], raw, "spec") if raw else None) or kind.spec_view()


def find_changed(workload: Workload, before: Workload | None) -> tuple[Template, ...]:
    """Return the templates that an update changed: all of a new workload, and all if the workload's label changed."""
    if before is None or (workload.label is not None and workload.label != before.label):
        return workload.templates
    previous = {template.title: template.raw for template in before.templates}
    return tuple(
        template for template in workload.templates if not _is_same(template.raw, previous.get(template.title))
    )


class _WalkState(msgspec.Struct, frozen=True):
    """The position in the object during the search for its templates."""

    template_path: frameworks.TemplatePath
    context: frameworks.TemplateContext
    pointer: str = ""
    title: str = ""
    label: str | None = None
    above: tuple[tuple[str, views.ObjectMeta], ...] = ()

    def enter_member(self, key: str) -> "_WalkState":
        """Return the position after entering a member of an object."""
        title = f"{self.title}.{key[:_MAX_NAME]}" if self.title else key
        return msgspec.structs.replace(self, pointer=f"{self.pointer}/{frameworks.escape(key)}", title=title)

    def enter_entry(self, index: int, name: str) -> "_WalkState":
        """Return the position after entering an entry of a list."""
        display_name = name[:_MAX_NAME] or str(index)
        context = msgspec.structs.replace(self.context, name=name, index=index)
        return msgspec.structs.replace(
            self, pointer=f"{self.pointer}/{index}", title=f"{self.title}[{display_name}]", context=context
        )


def _walk(raw: bytes | msgspec.Raw, steps: Sequence[str], state: _WalkState) -> Iterator[Template | None]:
    """Yield the templates at the end of the steps; None for a path without one."""
    if not steps:
        if state.template_path.pod_spec:
            raw = msgspec.json.encode(state.template_path.read(_decode(_ANYTHING, raw, state.title)))
        template: PodTemplate | None = _decode(_TEMPLATE, raw, state.title)
        if template is None:
            yield None
            return
        path = state.template_path
        added = path.build_metadata(state.context)
        yield Template(
            state.pointer, state.title, bytes(raw), template, state.label, state.context, added, state.above, path
        )
        return
    members = _decode(_MEMBERS, raw, state.title)
    key, rest = steps[0], steps[1:]
    if members is None:
        yield None
        return
    if key == frameworks.EACH:
        for child, member in _list_members(members, state):
            yield from _walk(member, rest, child)
        return
    if isinstance(members, list):
        raise UnreadableError(f"{state.title or 'the object'} is a list; expected an object")
    if "metadata" in members:
        parent: _Labelled = _decode(_LABELLED, raw, state.title)
        metadata = parent.metadata or _NO_METADATA
        label = metadata.labels.get(names.FABRIC, state.label)
        state = msgspec.structs.replace(state, label=label, above=(*state.above, (state.title, metadata)))
    if key not in members:
        yield None
        return
    yield from _walk(members[key], rest, state.enter_member(key))


def _list_members(
    members: Mapping[str, msgspec.Raw] | Sequence[msgspec.Raw], state: _WalkState
) -> Iterator[tuple[_WalkState, msgspec.Raw]]:
    if isinstance(members, Mapping):
        for key, member in members.items():  # the key is the name of a replica or group
            context = msgspec.structs.replace(state.context, name=key)
            yield msgspec.structs.replace(state.enter_member(key), context=context), member
        return
    for index, member in enumerate(members):
        yield state.enter_entry(index, _read_name(member, state)), member


def _read_name(member: msgspec.Raw, state: _WalkState) -> str:
    """Return the name of a list's entry, "" if it has none."""
    fields = _decode(_MEMBERS, member, state.title)
    if not isinstance(fields, dict) or state.template_path.name_field not in fields:
        return ""
    name = _decode(_ANYTHING, fields[state.template_path.name_field], state.title)
    return name if isinstance(name, str) else ""


def _is_same(raw: bytes, old: bytes | None) -> bool:
    """True if two templates are equal, ignoring the order of keys.

    A template with invalid JSON in a part that railwright does not read counts as different, and is not rejected.
    """
    if old is None or raw == old:
        return raw == old
    try:
        is_equal: bool = _ANYTHING.decode(raw) == _ANYTHING.decode(old)
    except UNREADABLE:
        return False
    return is_equal


def _decode(decoder: msgspec.json.Decoder[Any], raw: bytes | msgspec.Raw, path: str) -> Any:
    try:
        return decoder.decode(raw)
    except UNREADABLE as error:
        raise UnreadableError(f"{path or 'the object'}: {error}") from None
