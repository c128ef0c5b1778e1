"""Writes the ResourceClaimTemplates that pods and Kueue's Workloads name, and removes unused ones.

Each replica does this: a template that exists already is as good as one that was written. The rails of a gang are
chosen when the first template of its pods is written, by the devices that are free then, and stay with the template. A
pod that waits for its template is scheduled as soon as the template exists. Kueue counts the devices of a Workload's
templates before it admits the job, so these are written while the job has no pods. What is written is computed from
the pod, or the pod set of the Workload, and the policy in force (`prepare`).
"""

import asyncio
import contextlib
import logging
import random
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence

import msgspec

from railwright.cluster import client as clients
from railwright.cluster import errors, events, resources, watch_wire
from railwright.fabric import names, node_views, text, views
from railwright.fabric.claims import claim_templates, node_devices, objects
from railwright.fabric.injection import claim_requests, context, facts, opt_in
from railwright.fabric.policy import claimed_rails
from railwright.fabric.policy import model as policies
from railwright.fabric.reasons import reason
from railwright.serving import metrics
from webhook import claim_cache, object_events
from webhook import state as states

CREATED, REMOVED, EXISTS, FAILED = "created", "removed", "exists", "failed"  # results of a write, in the metric
_LONGEST_SWEEP_SECONDS, _SHORTEST_SWEEP_SECONDS = 15.0, 0.5
_MAX_WRITES = 16  # at the same time
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.2, 30.0
_MAX_DOUBLINGS = 8
_OBSERVED_SECONDS = 2.0  # a watch shows a new object sooner
_TEMPLATES_AT_ONCE = 500  # then requests are answered
_REST = 4  # pause after looking for missing templates, as a multiple of the time that it took
_NO_FAILURES = (0, 0.0)
_NOT_FOUND, _CONFLICT = 404, 409
_LOG = logging.getLogger("railwright.claims")
_decode = msgspec.json.Decoder(objects.ResourceClaimTemplate).decode

Key = claim_cache.Key


class PlanError(Exception):
    """The templates of a pod cannot be computed. The message has the cause and the fix."""


class Writing(msgspec.Struct, frozen=True):
    """The templates that a pod names, and what they are computed from."""

    claimed: claim_requests.ClaimedFabric
    plan: claim_requests.ClaimPlan
    names: tuple[str, ...]  # as the pod names them; they differ from the plan's if the policy has changed

    @property
    def needs_choice(self) -> bool:
        """True if the rails are to be chosen for the gang."""
        return self.plan.choice is claim_requests.Choice.GANG

    @property
    def device_names(self) -> node_devices.DeviceNames:
        """Return the resources under which the devices of the templates count."""
        claims, has_gpus = self.claimed.claims, bool(self.plan.accelerators)
        return node_devices.DeviceNames(
            rails=tuple(rail.resource for rail in self.claimed.rails),
            accelerator=claims.accelerator_resource if has_gpus else "",
            pair_attribute=self.claimed.hardware.pair_attribute,
        )

    def build_templates(self, namespace: str, rails: Sequence[str]) -> list[claim_templates.Tree]:
        """Return the templates. `rails` are those that were chosen for the gang; unknown ones are replaced."""
        positions = self._find_positions(rails)
        specs = claim_requests.build_specs(self.claimed, self.plan, positions)
        if len(specs) != len(self.names):  # groups of the hardware differ in size: take the first, as the name does
            positions = self.plan.rails
            specs = claim_requests.build_specs(self.claimed, self.plan, positions)
        if len(specs) != len(self.names):
            raise PlanError(
                f"the pod has {text.format_count(len(self.names), 'claim')} and the policy needs "
                f"{len(specs)} by now; recreate the pod or its job"
            )
        labels = {names.FABRIC: self.plan.fabric, names.MANAGED_BY: names.OWNER}
        annotations = self._annotate(positions)
        return [
            claim_templates.build_template(namespace, name, labels, annotations, devices)
            for name, devices in zip(self.names, specs, strict=True)
        ]

    def choose_rails(self, free: claim_templates.FreeDevices) -> tuple[str, ...]:
        """Return the rails for the gang, by what is free. Of equal rails, the first ones are left to single pods."""
        last_first = self.claimed.gives_first_rails
        count, accelerators = len(self.plan.rails), self.plan.accelerators
        positions = claim_templates.choose_rails(
            self.claimed.hardware, count, accelerators, free, last_first=last_first
        )
        return tuple(self.claimed.rails[position].name for position in positions)

    def _find_positions(self, rails: Sequence[str]) -> tuple[int, ...]:
        order = list(self.claimed.claims.rails)
        positions = tuple(sorted(order.index(rail) for rail in rails if rail in order))
        is_usable = self.needs_choice and len(positions) == len(self.plan.rails)
        return positions if is_usable else self.plan.rails

    def _annotate(self, positions: Sequence[int]) -> dict[str, str]:
        if self.plan.choice is claim_requests.Choice.SCHEDULER:
            return {}
        return {names.RAILS: ",".join(self.claimed.rails[position].name for position in positions)}


def prepare(pod: views.Pod, policy: policies.Policy, cluster: facts.ClusterFacts) -> Writing:
    """Return what is to be written for a pod that names templates of railwright. Raises PlanError."""
    try:
        fabric = opt_in.find_fabric(pod, policy.document, cluster)
        ctx = context.build(pod, policy, cluster, fabric, context.UserOptions()) if fabric is not None else None
        plan = claim_requests.plan_claims(pod, ctx) if ctx is not None else None
    except reason.RefusedError as error:
        raise PlanError(error.message) from None
    if plan is None:
        raise PlanError("by the policy in force the pod gets no rails by claims; recreate the pod or its job")
    claimed = policy.compile_once(claim_requests.compile_fabrics)[plan.fabric]
    return Writing(claimed, plan, tuple(claim.template for claim in claim_templates.list_claims(pod)))


_NODES_AT_ONCE = 200  # then requests are answered


class RailChoices:
    """Chooses each gang's rails under a lock, so that a choice counts the earlier ones."""

    def __init__(self, state: states.State) -> None:
        self._state = state
        self._chosen: dict[Key, claim_cache.OwnTemplate] = {}  # templates that the cache does not show yet
        self._choosing = asyncio.Lock()

    def keep(self, missing: Collection[Key]) -> None:
        """Forget the choices for all other templates."""
        self._chosen = {key: template for key, template in self._chosen.items() if key in missing}

    async def choose(self, first: Key, pod: views.Pod, writing: Writing, policy: policies.Policy) -> tuple[str, ...]:
        """Return the rails of a pod's gang: those of its first template, otherwise those with the most free devices."""
        async with self._choosing:
            known = self._state.claim_templates.find_rails(first)
            if known:
                return known
            if first in self._chosen:
                return self._chosen[first].rails
            names = writing.device_names
            resources = policy.compile_once(claimed_rails.list_claim_resources)
            self._state.devices.name_resources(resources, names.pair_attribute)
            nodes = await self._count_free(pod, names)
            free = claim_templates.FreeDevices(nodes=nodes, waiting=self._count_waiting(writing))
            rails = await asyncio.to_thread(writing.choose_rails, free)  # 0.5 s if no two of 5,000 nodes are alike
            self._chosen[first] = claim_cache.OwnTemplate("", writing.plan.fabric, rails)
            return rails

    async def _count_free(self, pod: views.Pod, names: node_devices.DeviceNames) -> Counter[node_devices.FreeRails]:
        """Return for each set of free devices the number of nodes that suit the pod and have it."""
        counts: Counter[node_devices.FreeRails] = Counter()
        for number, name in enumerate(self._state.devices.list_nodes()):
            node = self._state.nodes.by_name.get(name)
            if node is not None and _may_have(node, pod):
                counts[self._state.devices.count_free_rails(name, names)] += 1
            if number % _NODES_AT_ONCE == _NODES_AT_ONCE - 1:
                await asyncio.sleep(0)
        return counts

    def _count_waiting(self, writing: Writing) -> Counter[tuple[int, ...]]:
        """Return the number of pods without a node by the rails of their template, as positions in the fabric."""
        positions = {rail: position for position, rail in enumerate(writing.claimed.claims.rails)}
        counts: Counter[tuple[int, ...]] = Counter()
        for key, template in {**self._state.claim_templates.own, **self._chosen}.items():
            if template.fabric == writing.plan.fabric and claim_templates.is_first(key[1]):
                rails = tuple([positions[rail] for rail in template.rails if rail in positions])
                counts[rails] += self._state.claiming_pods.count_waiting(key)
        return counts


def _may_have(node: node_views.Node, pod: views.Pod) -> bool:
    """True if the node is not cordoned, and has the labels of the pod's nodeSelector."""
    labels = node.metadata.labels
    return not node.spec.unschedulable and all(
        labels.get(key) == value for key, value in (pod.spec.node_selector or {}).items()
    )


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of the server that the controller uses.

    `get_problem` returns "" once the caches are complete and fresh. An object is removed when nothing has named it for
    `unused_seconds`.
    """

    client: clients.Client
    state: states.State
    get_policy: Callable[[], policies.Policy | None]
    get_problem: Callable[[], str]
    poster: events.Events
    counters: metrics.Metrics
    unused_seconds: float


class ClaimTemplateController:
    """Keeps the templates equal to what pods and Workloads name."""

    def __init__(self, parts: Parts) -> None:
        self._parts, self._state = parts, parts.state
        self._changed = asyncio.Event()
        self._writing: set[Key] = set()
        self._choices = RailChoices(parts.state)
        self._retries: dict[Key, tuple[int, float]] = {}  # failures, and the time of the next attempt
        self._unused_since: dict[Key, float] = {}
        self._claimants = (parts.state.claiming_pods, parts.state.claiming_workloads)
        for cache in (parts.state.claim_templates, *self._claimants):
            cache.on_change = self.wake

    def wake(self) -> None:
        """Look for missing templates soon."""
        self._changed.set()

    def forget_failures(self) -> None:
        """Try failed writes again at once, because the policy has changed."""
        self._retries.clear()
        self.wake()

    async def run(self) -> None:
        """Write and remove templates until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._sweep())
            while True:
                self._changed.clear()
                now = time.monotonic()
                if not self._parts.get_problem():
                    await self._start_writes(tasks, now)
                    await asyncio.sleep(_REST * (time.monotonic() - now))
                await self._wait(now)

    async def _wait(self, started: float) -> None:
        """Wait for a change, for an attempt that became due since the writes were started, or for the caches."""
        now = time.monotonic()
        pauses = [time_due - now for _, time_due in self._retries.values() if time_due > started]
        pause = _FIRST_PAUSE_SECONDS if self._parts.get_problem() else min(pauses, default=None)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await self._changed.wait()

    # --- writing --------------------------------------------------------------------------------------

    async def _start_writes(self, tasks: asyncio.TaskGroup, now: float) -> None:
        """Start a write for each missing template, as many at a time as are allowed.

        Anybody's pods may name templates, so their number is not limited. Requests are answered meanwhile.
        """
        existing = self._state.claim_templates
        missing: set[Key] = set()
        keys = [key for cache in self._claimants for key in cache.templates]
        for start in range(0, len(keys), _TEMPLATES_AT_ONCE):
            missing.update([key for key in keys[start : start + _TEMPLATES_AT_ONCE] if key not in existing])
            await asyncio.sleep(0)
        self._parts.counters.claim_templates_missing.set(len(missing))
        self._choices.keep(missing)
        self._retries = {key: retry for key, retry in self._retries.items() if key in missing}
        for number, key in enumerate(missing):
            if number % _TEMPLATES_AT_ONCE == _TEMPLATES_AT_ONCE - 1:
                await asyncio.sleep(0)
            pod = next(filter(None, (cache.find_waiting(key) for cache in self._claimants)), None)
            if pod is None or self._retries.get(key, _NO_FAILURES)[1] > now:
                continue
            if len(self._writing) == _MAX_WRITES:
                break
            first = (key[0], claim_templates.list_claims(pod)[0].template)
            if first not in self._writing:
                self._writing.add(first)
                tasks.create_task(self._write_and_report(first, key, pod))

    async def _write_and_report(self, first: Key, missing: Key, pod: views.Pod) -> None:
        """Write the templates of a pod, of which `first` is the first. A failure is reported on the pod."""
        try:
            await self._write(first, pod)
        except PlanError as error:
            self._report_failure(missing, pod, str(error))
        except errors.ClusterError as error:
            self._report_failure(missing, pod, error.sentence, error.retry_after)
        finally:
            self._writing.discard(first)
            self.wake()

    async def _write(self, first: Key, pod: views.Pod) -> None:
        policy = self._parts.get_policy()
        if policy is None:
            return
        namespace = first[0]
        writing = prepare(pod, policy, self._state.build_facts(namespace))
        rails = await self._choices.choose(first, pod, writing, policy) if writing.needs_choice else ()
        trees = writing.build_templates(namespace, rails)
        if not await self._create(namespace, trees[0]) and writing.needs_choice and len(trees) > 1:
            trees = writing.build_templates(namespace, await self._read_rails(first))
        for tree in trees[1:]:
            await self._create(namespace, tree)

    async def _read_rails(self, key: Key) -> tuple[str, ...]:
        """Return the rails of a template as it is stored. Anybody may have created it, with any content."""
        namespace, name = key
        path = f"{_build_path(namespace)}/{name}"
        try:
            existing = await watch_wire.decode(_decode, await self._parts.client.get(path))
        except watch_wire.UNREADABLE as error:
            raise PlanError(
                f"ResourceClaimTemplate {namespace}/{name} exists and cannot be read: {error}; delete it, then it is "
                "written again"
            ) from None
        return claim_cache.read_rails(existing)

    async def _create(self, namespace: str, tree: claim_templates.Tree) -> bool:
        """Create a template. Return False if it exists, because another replica was first."""
        name, rails = tree["metadata"]["name"], tree["metadata"]["annotations"].get(names.RAILS, "any")
        if (namespace, name) in self._state.claim_templates:
            return False
        if not await self._post(namespace, tree):
            return False
        _LOG.info("claim template created", extra={"fields": {"namespace": namespace, "name": name, "rails": rails}})
        return True

    async def _post(self, namespace: str, tree: claim_templates.Tree) -> bool:
        """Create a template. Return False if it exists, because another replica was first."""
        outcome = CREATED
        try:
            await self._parts.client.post(_build_path(namespace), msgspec.json.encode(tree))
        except errors.ApiError as error:
            if error.status != _CONFLICT:
                raise
            outcome = EXISTS
        self._parts.counters.claim_templates.labels(outcome).inc()
        # left alone until the watch shows it
        self._retries[namespace, tree["metadata"]["name"]] = (0, time.monotonic() + _OBSERVED_SECONDS)
        return outcome == CREATED

    def _report_failure(self, key: Key, pod: views.Pod, cause: str, asked_seconds: float = 0.0) -> None:
        failures = self._retries.get(key, _NO_FAILURES)[0]
        longest = min(_LONGEST_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2 ** min(failures, _MAX_DOUBLINGS))
        pause = max(asked_seconds, longest * random.uniform(0.5, 1.0))  # noqa: S311 - jitter, not secrecy
        for template in claim_templates.list_templates(pod):  # one attempt for a pod, however many templates it names
            self._retries[key[0], template] = (failures + 1, time.monotonic() + pause)
        self._parts.counters.claim_templates.labels(FAILED).inc()
        if failures == 0:
            fields = {"namespace": key[0], "name": key[1], "pod": pod.metadata.name, "error": cause}
            _LOG.warning("claim template not written", extra={"fields": fields})
        object_events.post_failure(self._parts.poster, pod, f"ResourceClaimTemplate {key[1]}", cause)

    # --- removing -------------------------------------------------------------------------------------

    async def _sweep(self) -> None:
        while True:
            if not self._parts.get_problem():
                await self._remove_unused(time.monotonic())
            pause = min(_LONGEST_SWEEP_SECONDS, self._parts.unused_seconds / 4)
            await asyncio.sleep(max(_SHORTEST_SWEEP_SECONDS, pause))

    async def _remove_unused(self, now: float) -> None:
        """Remove the templates that no pod and no Workload has named for a time."""
        unused = [key for key in self._state.claim_templates.own if not self._is_used(key)]
        self._unused_since = {key: self._unused_since.get(key, now) for key in unused}
        for key in unused:
            if now - self._unused_since[key] >= self._parts.unused_seconds and not self._is_used(key):
                await self._remove(key)

    def _is_used(self, key: Key) -> bool:
        return any(key in cache.templates for cache in self._claimants)

    async def _remove(self, key: Key) -> None:
        template = self._state.claim_templates.own.get(key)
        if template is None:
            return
        # not one that has replaced it
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": template.uid}}
        try:
            await self._parts.client.delete(f"{_build_path(key[0])}/{key[1]}", msgspec.json.encode(options))
        except errors.ClusterError as error:
            if error.status not in (_NOT_FOUND, _CONFLICT):  # otherwise another replica was first
                self._parts.counters.claim_templates.labels(FAILED).inc()
                fields = {"namespace": key[0], "name": key[1], "error": str(error)}
                _LOG.warning("unused claim template not removed", extra={"fields": fields})
            return
        self._parts.counters.claim_templates.labels(REMOVED).inc()
        _LOG.info("unused claim template removed", extra={"fields": {"namespace": key[0], "name": key[1]}})


def _build_path(namespace: str) -> str:
    group, _, resource = resources.CLAIM_TEMPLATES.path.rpartition("/")
    return f"{group}/namespaces/{namespace}/{resource}"
