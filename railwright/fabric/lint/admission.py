"""Lints a pod at admission, with the changes of its injection. Returns a few warnings and never rejects the pod.

Only findings that the pod's author can fix become warnings, so those about values from the operator's policy do not.
"""

from collections.abc import Iterable

import msgspec

from railwright.fabric import bounded_cache, names, pod_normalization, views
from railwright.fabric.lint import commands, engine, fabric_context, rank_contexts, rule_types
from railwright.fabric.nccl import catalogue
from railwright.fabric.policy import model as policies
from railwright.fabric.reasons import reason, rendering
from railwright.fabric.reasons.codes import AdmissionCode

_MAX_RESULTS = 512  # pods with different settings, for one version of the policy
_MAX_CACHED_KEY = 16384  # bytes; longer keys are not worth the memory
_MAX_KEY = 65536  # bytes; linting longer keys would delay the API server, and pods in use have far shorter ones
TOO_LARGE = (rendering.describe(reason.make(AdmissionCode.LINT_TOO_LARGE)),)
_pack = msgspec.msgpack.Encoder().encode


class InjectedPod(msgspec.Struct, frozen=True):
    """A pod with all changes of its injection, and the rails, networks and resources that it uses."""

    pod: views.Pod
    networks: fabric_context.Networks  # in its annotation k8s.v1.cni.cncf.io/networks
    fabric_name: str
    rails: tuple[str, ...]
    resources: frozenset[str]  # of these rails
    containers: tuple[int, ...]  # indices of the containers that the injection selected
    is_launcher: bool  # it has no rails, and passes settings to ranks in other pods that have all rails


class Linter:
    """Lints pods under one version of the policy. Pods of a gang have the same settings and are checked once."""

    def __init__(self, document: policies.FabricPolicy) -> None:
        self._document = document
        self._results: bounded_cache.BoundedCache[bytes, tuple[rendering.Message, ...]] = bounded_cache.BoundedCache(
            _MAX_RESULTS
        )

    def list_warnings(self, injected: InjectedPod) -> tuple[rendering.Message, ...]:
        """Return at most five warnings of at most 256 characters each. Never raises."""
        key = _build_key(injected)
        if len(key) > _MAX_KEY:
            return TOO_LARGE
        warnings = self._results.get(key)
        if warnings is None:
            warnings = _check_safely(injected, self._document)
            if len(key) <= _MAX_CACHED_KEY:
                self._results.add(key, warnings)
        return warnings


def prepare() -> None:
    """Index the rules of each variable of NCCL. A server does this before its first review."""
    for variable in catalogue.list_variables():
        engine.list_readers(variable.name)


def _check_safely(injected: InjectedPod, document: policies.FabricPolicy) -> tuple[rendering.Message, ...]:
    try:
        return _check(injected, find_use(injected, document))
    except Exception as error:  # noqa: BLE001 - a failure of lint must not reject the pod
        return (rendering.describe(reason.make(AdmissionCode.LINT_FAILED, error=type(error).__name__)),)


def find_use(injected: InjectedPod, document: policies.FabricPolicy) -> fabric_context.FabricUse:
    """Return the rails and resources of its fabric that the ranks of a pod use."""
    fabric = document.fabrics[injected.fabric_name]
    if injected.is_launcher:
        return fabric_context.use_all_rails(document, fabric)
    rails = tuple([rail for rail in fabric.rails if rail.name in injected.rails])
    return fabric_context.FabricUse(document, fabric, rails, injected.resources)


def _check(injected: InjectedPod, use: fabric_context.FabricUse) -> tuple[rendering.Message, ...]:
    warnings: dict[str, rendering.Message] = {}  # by line, because containers may share a name
    for index in injected.containers:
        container = injected.pod.spec.containers[index]
        findings = [finding for finding in _find(injected, index, use) if _can_author_fix(finding, use, container)]
        for warning in engine.list_warnings(findings):
            located = rendering.locate(warning, f"container {container.name}")
            warnings[located.line] = located
    return engine.limit_warnings(tuple(warnings.values()))


def _find(injected: InjectedPod, index: int, use: fabric_context.FabricUse) -> Iterable[rule_types.Finding]:
    pod = injected.pod
    if not injected.is_launcher:
        job = rank_contexts.JobContext(use=use, networks=injected.networks, limited=True)
        return engine.check(rank_contexts.build(pod, index, job))
    passed = rank_contexts.limit_settings(rank_contexts.list_passed(pod, index, rank_contexts.MAX_COMMAND))
    if not passed:
        return ()
    title = pod.spec.containers[index].name
    return engine.check(rule_types.RankContext(title, passed, fabric_context.build(use)))


def _can_author_fix(finding: rule_types.Finding, use: fabric_context.FabricUse, container: views.Container) -> bool:
    """True for a finding about a variable, unless its value is a literal of the policy.

    The policy also determines capabilities, mounts and networks, so the author cannot fix findings about those.
    """
    literal = use.fabric.env.get(finding.name) if use.fabric else None
    is_policy_value = literal is not None and any(
        entry.name == finding.name and entry.value == literal for entry in container.env
    )
    return bool(finding.name) and not is_policy_value


def _build_key(injected: InjectedPod) -> bytes:
    """Return a key that pods with equal warnings share.

    It has everything in the view of the pod except its status, variables that lint does not read, and fields that
    differ between pods of a gang.
    """
    metadata, spec = injected.pod.metadata, injected.pod.spec
    annotations = {key: value for key, value in metadata.annotations.items() if key != names.INJECTION}
    inputs = (
        injected.fabric_name,
        injected.networks,
        injected.containers,
        injected.is_launcher,
        injected.rails,
        sorted(injected.resources),
        pod_normalization.remove_indexes(metadata.labels_or_none),
        pod_normalization.remove_indexes(annotations),
        msgspec.structs.replace(spec, containers_or_none=None, volumes_or_none=None),
        pod_normalization.normalize_volumes(spec),
        [_normalize_container(container) for container in spec.containers],
    )
    try:
        return _pack(inputs)
    except OverflowError:  # a number beyond 64 bits
        return repr(inputs).encode(errors="backslashreplace")


def _normalize_container(container: views.Container) -> tuple[object, ...]:
    return (
        msgspec.structs.replace(container, env_or_none=None, volume_mounts_or_none=None),
        pod_normalization.normalize_mounts(container),
        [entry for entry in container.env_or_none or () if commands.is_relevant(entry.name)],
    )
