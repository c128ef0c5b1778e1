"""Reads the pod templates of a workload, each with its path, its inherited label and its controller's additions.

Also compares the templates of an update with those of the stored object.
"""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from railwright.fabric import names, views
from railwright.fabric.injection import accelerators
from railwright.fabric.workloads import frameworks

_MAX_NAME = 63  # characters of a member's name; Kubernetes allows no longer names


class UnreadableError(ValueError):
    """Raised for a workload of another form than its API's. The text names the path."""


class TooManyEntriesError(UnreadableError):
    """Raised for a workload whose lists have too many entries to read. The text names the workload and the fix."""


class PodTemplate(views.View, frozen=True):
    """A pod template as its author wrote it."""

    metadata: views.ObjectMeta | None = None
    spec: views.PodSpec | None = None


class Template(msgspec.Struct, frozen=True):
    """One template of a workload, with its place in it and its controller's additions."""

    title: str  # path of the template in messages
    origin: frameworks.TemplateOrigin
    written: PodTemplate
    inherited: str | None  # the opt-in label of the closest parent
    above: Sequence[tuple[str, views.ObjectMeta]] = ()  # path and metadata of its parents, outermost first
    requested: frozenset[str] = frozenset()  # by the containers of all templates: `accelerators.list_all_requested`

    @property
    def pointer(self) -> str:
        """Return the JSON pointer of the template."""
        return "".join([f"/{frameworks.escape(str(step))}" for step in self.origin.steps])

    @property
    def pod(self) -> views.Pod:
        """Return the template as a view of a pod."""
        return views.Pod(metadata=self.written.metadata or _NO_METADATA, spec=self.written.spec or _NO_SPEC)

    @property
    def label(self) -> str | None:
        """Return the opt-in label of the pods made from this template: its own, or the one that they inherit."""
        return self.pod.metadata.labels.get(names.FABRIC, self.inherited)


class Workload(msgspec.Struct, frozen=True):
    """A workload with its templates."""

    kind: frameworks.WorkloadKind
    tree: Any  # plain data
    metadata: views.ObjectMeta
    templates: tuple[Template, ...]

    @property
    def label(self) -> str | None:
        """Return the opt-in label of the object itself."""
        return self.metadata.labels.get(names.FABRIC)


class _Labelled(views.View, frozen=True):
    metadata: views.ObjectMeta | None = None


_NO_METADATA, _NO_SPEC = views.ObjectMeta(), views.PodSpec()


def read(kind: frameworks.WorkloadKind, tree: Any) -> Workload:
    """Return the workload in plain data. Raises UnreadableError, and TooManyEntriesError before reading them."""
    metadata = _convert(tree, _Labelled, "").metadata or _NO_METADATA
    start = frameworks.TemplateContext(metadata.name or metadata.generate_name, "", 0, tree.get("spec"))
    entries = itertools.chain.from_iterable(
        _walk(_Position(site, start, (tree,)), site.path) for site in kind.templates
    )
    read_entries = list(itertools.islice(entries, frameworks.MAX_ENTRIES + 1))
    if len(read_entries) > frameworks.MAX_ENTRIES:
        if metadata.labels.get(names.FABRIC) == names.FABRIC_NONE:
            return Workload(kind, tree, metadata, ())
        raise TooManyEntriesError(
            f"{kind.name} {metadata.name or f'{metadata.generate_name}*'}: its lists have more than "
            f"{frameworks.MAX_ENTRIES} entries for pod templates; use `replicas` for equal templates, split it into "
            f"several workloads, or opt out with label {names.FABRIC}: {names.FABRIC_NONE}"
        )
    templates = [template for template in read_entries if template is not None]
    requested = accelerators.list_all_requested(
        container for template in templates for container in template.pod.spec.containers
    )
    with_requests = [msgspec.structs.replace(template, requested=requested) for template in templates]
    return Workload(kind, tree, metadata, tuple(with_requests))


def find_changed(workload: Workload, before: Workload | None) -> tuple[Template, ...]:
    """Return the templates that an update changed: all of a new workload, and all if the workload's label changed."""
    if before is None or (workload.label is not None and workload.label != before.label):
        return workload.templates
    previous = {template.title: template.origin.template for template in before.templates}
    return tuple(
        [template for template in workload.templates if template.origin.template != previous.get(template.title)]
    )


class _Position(msgspec.Struct, frozen=True):
    """The position in the object during the search for its templates. `ancestors` end with the value there."""

    site: frameworks.TemplatePath
    context: frameworks.TemplateContext
    ancestors: tuple[Any, ...]
    steps: tuple[str | int, ...] = ()
    title: str = ""
    label: str | None = None
    above: tuple[tuple[str, views.ObjectMeta], ...] = ()

    def enter(self, step: str | int, title: str) -> "_Position":
        """Return the position of a member of the object, or of an entry of the list, at this position."""
        value = self.ancestors[-1][step]
        return msgspec.structs.replace(self, ancestors=(*self.ancestors, value), steps=(*self.steps, step), title=title)

    def enter_member(self, key: str) -> "_Position":
        """Return the position of a member of the object at this position."""
        return self.enter(key, f"{self.title}.{key[:_MAX_NAME]}" if self.title else key)


def _walk(position: _Position, steps: Sequence[str]) -> Iterator[Template | None]:
    """Yield the templates at the end of the steps; None for a path without one."""
    value, title = position.ancestors[-1], position.title
    if value is None:
        yield None
    elif not steps:
        yield _read_template(position)
    elif steps[0] == frameworks.EACH:
        for child in _list_members(position):
            yield from _walk(child, steps[1:])
    else:
        members = _convert(value, dict[str, Any], title)
        if "metadata" in members:
            metadata = _convert(value, _Labelled, title).metadata or _NO_METADATA
            label = metadata.labels.get(names.FABRIC, position.label)
            position = msgspec.structs.replace(position, label=label, above=(*position.above, (title, metadata)))
        if steps[0] in members:
            yield from _walk(position.enter_member(steps[0]), steps[1:])
        else:
            yield None


def _read_template(position: _Position) -> Template:
    context, site = position.context, position.site
    origin = frameworks.TemplateOrigin(context, site.build_metadata(context), position.steps, position.ancestors, site)
    value = origin.template if site.pod_spec else position.ancestors[-1]
    written = _convert(value, PodTemplate, position.title)
    return Template(position.title, origin, written, position.label, position.above)


def _list_members(position: _Position) -> Iterator[_Position]:
    """Yield the members of a map, whose keys are the names of replicas or groups, or the entries of a list."""
    members = _convert(position.ancestors[-1], dict[str, Any] | list[Any], position.title)
    if isinstance(members, dict):
        for key in members:
            context = msgspec.structs.replace(position.context, name=key)
            yield msgspec.structs.replace(position.enter_member(key), context=context)
        return
    for index, member in enumerate(members):
        name = frameworks.get_mapping(member).get(position.site.name_field)
        name = name if isinstance(name, str) else ""
        context = msgspec.structs.replace(position.context, name=name, index=index)
        entry = position.enter(index, f"{position.title}[{name[:_MAX_NAME] or index}]")
        yield msgspec.structs.replace(entry, context=context)


def _convert(value: Any, view: Any, path: str) -> Any:
    try:
        return msgspec.convert(value, view)
    except (msgspec.ValidationError, RecursionError) as error:
        raise UnreadableError(f"{path or 'the object'}: {error}") from None
