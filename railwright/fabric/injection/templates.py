"""The pod templates of a workload: found and read, each with its place, the label it inherits and what is added to it.

Owns the walk to the templates, and which of them an update changed. Refuses to know what a template gets.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from railwright.fabric import names, views
from railwright.fabric.injection import accelerators, kinds

_SHOWN = 63  # characters of a member's name; a longer one is no name in Kubernetes

_UNREADABLE = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)
_ANYTHING = msgspec.json.Decoder()
_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw] | list[msgspec.Raw] | None)


class UnreadableError(ValueError):
    """A workload that does not decode; the text names the place."""


class PodTemplate(views.View, frozen=True):
    """A pod template as it is written."""

    metadata: views.ObjectMeta | None = None
    spec: views.PodSpec | None = None


class Template(msgspec.Struct, frozen=True):
    """One template of a workload."""

    pointer: str  # of the template, as a JSON pointer
    title: str  # of the template, as messages name it
    raw: bytes
    written: PodTemplate
    inherited: str | None  # the opt-in label nearest above it
    spot: kinds.Spot
    added: kinds.Additions
    above: Sequence[tuple[str, views.ObjectMeta]] = ()  # what it stands in: place and metadata, the object's first
    requested: frozenset[str] = frozenset()  # extended resources that the containers of all templates ask for

    @property
    def pod(self) -> views.Pod:
        """The template as it is written, as a pod."""
        return views.Pod(metadata=self.written.metadata or _NO_METADATA, spec=self.written.spec or _NO_SPEC)

    @property
    def label(self) -> str | None:
        """The opt-in label its pods will carry: its own, else the one it inherits."""
        return self.pod.metadata.labels.get(names.FABRIC, self.inherited)


class Workload(msgspec.Struct, frozen=True):
    """A workload with its templates."""

    kind: kinds.Kind
    metadata: views.ObjectMeta
    templates: tuple[Template, ...]

    @property
    def label(self) -> str | None:
        """The opt-in label of the object itself."""
        return self.metadata.labels.get(names.FABRIC)


class _Root(views.View, frozen=True):
    metadata: views.ObjectMeta | None = None
    spec: kinds.Spec | None = None


class _Labelled(views.View, frozen=True):
    metadata: views.ObjectMeta | None = None


_ROOT = msgspec.json.Decoder(_Root)
_LABELLED = msgspec.json.Decoder(_Labelled)
_TEMPLATE = msgspec.json.Decoder(PodTemplate | None)
_NO_METADATA, _NO_SPEC = views.ObjectMeta(), views.PodSpec()


def read(kind: kinds.Kind, body: bytes) -> Workload:
    """The workload in a JSON document. Raises UnreadableError."""
    root: _Root = _decoded(_ROOT, body, "")
    metadata = root.metadata or _NO_METADATA
    start = kinds.Spot(metadata.name or metadata.generate_name, "", 0, root.spec or kinds.Spec())
    found = [each for site in kind.sites for each in _walk(body, site.path, _Place(site, start))]
    specs = [each.written.spec for each in found if each.written.spec is not None]
    requested = frozenset().union(*(accelerators.asked(each) for spec in specs for each in spec.containers))
    return Workload(kind, metadata, tuple([msgspec.structs.replace(each, requested=requested) for each in found]))


def changed(workload: Workload, before: Workload | None) -> tuple[Template, ...]:
    """The templates that are not what they were: all of a new workload, and of one that was given another label."""
    if before is None or (workload.label is not None and workload.label != before.label):
        return workload.templates
    old = {each.title: each.raw for each in before.templates}
    return tuple(each for each in workload.templates if not _same(each.raw, old.get(each.title)))


class _Place(msgspec.Struct, frozen=True):
    """How far a walk has come."""

    site: kinds.Site
    spot: kinds.Spot
    pointer: str = ""
    title: str = ""
    label: str | None = None
    above: tuple[tuple[str, views.ObjectMeta], ...] = ()

    def member(self, key: str) -> "_Place":
        """The place of an object's member."""
        title = f"{self.title}.{key[:_SHOWN]}" if self.title else key
        escaped = key.replace("~", "~0").replace("/", "~1")
        return msgspec.structs.replace(self, pointer=f"{self.pointer}/{escaped}", title=title)

    def entry(self, index: int, name: str) -> "_Place":
        """The place of a list's entry."""
        shown = name[:_SHOWN] or str(index)
        spot = msgspec.structs.replace(self.spot, name=name, index=index)
        return msgspec.structs.replace(
            self, pointer=f"{self.pointer}/{index}", title=f"{self.title}[{shown}]", spot=spot
        )

    def named(self, name: str) -> "_Place":
        """The same for the member of a map that stands for a replica or group of this name."""
        return msgspec.structs.replace(self, spot=msgspec.structs.replace(self.spot, name=name))


def _walk(raw: bytes | msgspec.Raw, steps: Sequence[str], at: _Place) -> Iterator[Template]:
    if not steps:
        written: PodTemplate | None = _decoded(_TEMPLATE, raw, at.title)
        if written is not None:
            added = at.site.adds(at.spot)
            yield Template(at.pointer, at.title, bytes(raw), written, at.label, at.spot, added, at.above)
        return
    members = _decoded(_MEMBERS, raw, at.title)
    step, rest = steps[0], steps[1:]
    if members is None:
        return
    if step == kinds.EACH:
        for place, member in _members(members, at):
            yield from _walk(member, rest, place)
        return
    if isinstance(members, list):
        raise UnreadableError(f"{at.title or 'the object'} is a list; expected an object")
    if "metadata" in members:
        above: _Labelled = _decoded(_LABELLED, raw, at.title)
        metadata = above.metadata or _NO_METADATA
        label = metadata.labels.get(names.FABRIC, at.label)
        at = msgspec.structs.replace(at, label=label, above=(*at.above, (at.title, metadata)))
    if step in members:
        yield from _walk(members[step], rest, at.member(step))


def _members(
    members: Mapping[str, msgspec.Raw] | Sequence[msgspec.Raw], at: _Place
) -> Iterator[tuple[_Place, msgspec.Raw]]:
    if isinstance(members, Mapping):
        for key, member in members.items():
            yield at.member(key).named(key), member
        return
    for index, member in enumerate(members):
        yield at.entry(index, _name(member, at)), member


def _name(member: msgspec.Raw, at: _Place) -> str:
    """What a list's entry calls itself, "" where it does not."""
    found = _decoded(_MEMBERS, member, at.title)
    if not isinstance(found, dict) or at.site.named_by not in found:
        return ""
    name = _decoded(_ANYTHING, found[at.site.named_by], at.title)
    return name if isinstance(name, str) else ""


def _same(raw: bytes, old: bytes | None) -> bool:
    """True where two templates say the same, whatever the order of their keys.

    Where a part that nobody else reads is no JSON, they count as different: nothing is refused for it.
    """
    if old is None or raw == old:
        return raw == old
    try:
        same: bool = _ANYTHING.decode(raw) == _ANYTHING.decode(old)
    except _UNREADABLE:
        return False
    return same


def _decoded(decoder: msgspec.json.Decoder[Any], raw: bytes | msgspec.Raw, where: str) -> Any:
    try:
        return decoder.decode(raw)
    except _UNREADABLE as error:
        raise UnreadableError(f"{where or 'the object'}: {error}") from None
