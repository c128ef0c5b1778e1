"""Lint at admission: a pod as it is about to be injected -> a few warnings, never a refusal.

Owns which findings a pod's author is told (not those about values the operator's policy set) and the memory of earlier
pods: the mates of a gang bring the same settings and cost a look-up.
"""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from railwright.fabric import names, views
from railwright.fabric.injection import applied, context, likeness
from railwright.fabric.injection import model as changes_model
from railwright.fabric.lint import commands, engine, model, sites, subjects
from railwright.fabric.nccl import catalogue
from railwright.fabric.policy import model as policies

_KEPT = 512  # pods' settings remembered for one policy
_LONGEST_KEY = 16384  # bytes: what is longer is looked at anew each time, so that nobody fills the memory
_TOO_LONG = 65536  # bytes: the API server waits, and no pod that trains is so long; the command has the time
_TOO_MANY = 512  # changes, for the same reason
_UNREAD = ("the pod is too large to be linted during admission; `railwright lint` looks at all of it",)
_POLICIES = 2  # the one in force, and the one a test or a comparison uses beside it
# Of names lint looks at: a look-up is several times faster than trying each prefix, and a name too many is harmless.
_BEGINNINGS = frozenset(prefix[:3] for prefix in commands.RELEVANT)
_pack = msgspec.msgpack.Encoder().encode


def _encode(followed: tuple[object, ...]) -> bytes:
    try:
        return _pack(followed)
    except OverflowError:  # a number beyond 64 bits
        return repr(followed).encode(errors="backslashreplace")


class _Memory:
    """Warnings by what they follow from, under one policy document."""

    def __init__(self, document: policies.FabricPolicy) -> None:
        self.document = document
        self.warnings: dict[bytes, tuple[str, ...]] = {}


_memories: list[_Memory] = []


def prepare() -> None:
    """Import the rules and read the catalogue: a server does it before its first review, which would wait for it."""
    engine.every()
    catalogue.list_variables()


def warnings(ctx: context.InjectionContext, changes: Sequence[changes_model.AnyChange]) -> tuple[str, ...]:
    """At most five sentences of at most 256 characters about the pod's settings after `changes`. Never raises."""
    if len(changes) > _TOO_MANY:
        return _UNREAD
    memory = _memory(ctx.document)
    key = _key(ctx, changes)
    if len(key) > _TOO_LONG:
        return _UNREAD
    found = memory.warnings.get(key)
    if found is None:
        found = _guarded(ctx, changes)
        if len(key) <= _LONGEST_KEY:
            if len(memory.warnings) >= _KEPT:
                memory.warnings.clear()
            memory.warnings[key] = found
    return found


def _guarded(ctx: context.InjectionContext, changes: Sequence[changes_model.AnyChange]) -> tuple[str, ...]:
    try:
        return _looked(ctx, changes)
    except Exception as error:  # noqa: BLE001 - advice must never keep a pod from its network, whatever is wrong with it
        return (f"railwright could not lint this pod ({type(error).__name__}); nothing else is affected",)


def _looked(ctx: context.InjectionContext, changes: Sequence[changes_model.AnyChange]) -> tuple[str, ...]:
    pod = applied.apply(ctx.pod, changes)
    ground = sites.Ground(ctx.document, ctx.fabric, ctx.rails)
    around = subjects.Around(ground=ground, namespace=ctx.known.namespace, everything=False)
    told = []
    for index in ctx.targets:
        container = pod.spec.containers[index]
        findings = [each for each in _findings(ctx, pod, index, around) if _for_the_author(each, ctx, pod, index)]
        told += [f"container {container.name}: {sentence}" for sentence in engine.sentences(findings)]
    return engine.limit_warnings(tuple(dict.fromkeys(told)))


def _findings(
    ctx: context.InjectionContext, pod: views.Pod, index: int, around: subjects.Around
) -> Iterable[model.Finding]:
    if ctx.role.rails:
        return engine.check(subjects.ranks(pod, index, around))
    passed = subjects.bounded(
        subjects.passed(pod, index, subjects.SHORT)
    )  # a launcher: what it passes on, for pods that are not seen here
    if not passed:
        return ()
    title = pod.spec.containers[index].name
    return engine.check(model.Ranks(title, passed, sites.of_fabric(sites.whole(ctx.document, ctx.fabric))))


def _for_the_author(finding: model.Finding, ctx: context.InjectionContext, pod: views.Pod, index: int) -> bool:
    """True for what is said of a variable, unless its value is the operator's literal.

    What the pod has besides (capabilities, mounts, networks) is what the policy gives it: its author cannot mend that.
    """
    literal = ctx.fabric.env.get(finding.name)
    env = pod.spec.containers[index].env
    operators = literal is not None and any(each.name == finding.name and each.value == literal for each in env)
    return bool(finding.name) and not operators


def _memory(document: policies.FabricPolicy) -> _Memory:
    for memory in _memories:
        if memory.document is document:
            return memory
    memory = _Memory(document)
    _memories.insert(0, memory)
    del _memories[_POLICIES:]
    return memory


def _key(ctx: context.InjectionContext, changes: Sequence[changes_model.AnyChange]) -> bytes:
    """All that the warnings follow from, besides the policy; what differs between mates is not in it."""
    spec = ctx.pod.spec
    annotations = ctx.pod.metadata.annotations
    return _encode(
        (
            ctx.fabric_name,
            ctx.role.rails,
            ctx.known.namespace,
            [(chosen.rail.name, chosen.resource) for chosen in ctx.rails],
            ctx.targets,
            annotations.get(names.NETWORKS),
            annotations.get(names.NCCL_CONF),
            sites.unforeseen(annotations),
            (
                spec.host_network,
                spec.host_ipc,
                bool(spec.resource_claims),
                spec.node_selector,
                spec.affinity,
                spec.security_context,
            ),
            likeness.volumes(spec),
            [_part(spec.containers[index]) for index in ctx.targets],
            [*_done(changes)],
        )
    )


def _part(container: views.Container) -> tuple[object, ...]:
    return (
        container.name,
        container.image,
        container.command,
        container.args,
        container.resources,
        likeness.mounts(container),
        container.security_context,
        [entry for entry in container.env_or_none or () if entry.name[:3] in _BEGINNINGS],
    )


def _done(changes: Sequence[changes_model.AnyChange]) -> Iterator[object]:
    for change in changes:
        if type(change) is changes_model.SetEnv:
            yield (change.container, change.name, change.value)
        elif type(change) is changes_model.SetAnnotation:
            yield (change.key, change.value)
        elif type(change) is changes_model.AddResource:  # what other containers ask for counts too
            yield (change.container, change.resource, change.quantity)
        else:
            yield change.entry
