"""Writes the ResourceClaimTemplates that pods name.

Templates for a workload are written during its admission, before the review is answered: Kueue counts their devices
before it admits a job, when there are no pods. Templates for a pod are written once the watch shows that it waits.
Templates are never deleted: equal content has one name, so a namespace has few.

The content is computed from the pod and the policy in force, as at admission. Each replica may write. A replica
whose policy differs from the one at the pod's admission computes other names, and does not write the pod's templates.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from railwright.cluster import client as clients
from railwright.cluster import errors, events, resources
from railwright.fabric import views
from railwright.fabric.claims import claim_templates as claims
from railwright.fabric.injection import claim_requests
from railwright.fabric.policy import model as policies
from railwright.fabric.policy import shortcomings
from railwright.fabric.reasons import reason
from railwright.fabric.reasons.codes import AdmissionCode
from webhook import object_events
from webhook import state as states

_PAUSE_SECONDS = 0.2  # between two searches for missing templates, which take a millisecond for 1,000 waiting pods
_PAUSE_FACTOR = 4  # shortest pause, as a multiple of the time that the search took
_RETRY_SECONDS = 10.0  # after a failure; replicas have different policies for less than this
_OBSERVED_SECONDS = 2.0  # a watch shows a new object sooner
_FORBIDDEN, _CONFLICT = 403, 409
# of a quota, or of a missing right: both have one status
_FIX = f"ask the operator to raise the quota, or to grant the missing right: {shortcomings.GRANT_CLAIMS}"
_WRITE_SECONDS = 2.0  # for the templates of a workload: its author waits
_MAX_OF_WORKLOAD = 16  # more are written when there are pods


class _NotWrittenError(Exception):
    """Raised if a template is not written, because of the policy or the API server. The message has cause and fix."""

    def __init__(self, text: str, *, is_refused: bool = False) -> None:
        super().__init__(text)
        self.is_refused = is_refused


class ClaimTemplateController:
    """Writes the claim templates that pods name and that do not exist.

    While `get_problem` returns why the caches are incomplete or old, no template of a waiting pod is written.
    """

    def __init__(
        self,
        client: clients.Client,
        state: states.State,
        poster: events.Events,
        *,
        get_policy: Callable[[], policies.Policy | None],
        get_problem: Callable[[], str],
    ) -> None:
        self._client, self._state, self._poster = client, state, poster
        self._get_policy, self._get_problem = get_policy, get_problem
        self._due: dict[states.Key, float] = {}  # when to write a missing template again, after an attempt

    async def write_templates_of_workload(self, namespace: str, pods: Iterable[views.Pod]) -> Sequence[reason.Reason]:
        """Write the missing templates that the pods of a workload will name. Return a warning for each failure."""
        if self._state.is_without_templates():
            return ()  # the plan of the pods has said so
        named = {(namespace, claim.template): pod for pod in pods for claim in claims.list_railwright_claims(pod)}
        missing = self._select_unwritten_templates(named)
        chosen = list(missing.items())[:_MAX_OF_WORKLOAD]
        causes = await asyncio.gather(*(self._write_in_time(key, pod) for key, pod in chosen))
        return [
            reason.Reason(
                AdmissionCode.CLAIM_TEMPLATE_NOT_WRITTEN,
                f"ResourceClaimTemplate {name} is not written: {cause}",
                fix="correct the cause, and create the workload again if Kueue queues it",
            )
            for ((_, name), _), cause in zip(chosen, causes, strict=True)
            if cause
        ]

    async def run(self) -> None:
        """Write the templates of waiting pods until cancelled."""
        while True:
            started = time.monotonic()
            if not self._get_problem():
                await self._write_missing_templates()
            await asyncio.sleep(max(_PAUSE_SECONDS, _PAUSE_FACTOR * (time.monotonic() - started)))

    async def _write_missing_templates(self) -> None:
        """Write each missing template that is due. The event loop answers requests between two of them."""
        waiting = (self._state.claiming_pods.by_key or {}).values()
        missing = self._select_unwritten_templates({key: pod for pods in waiting for key, pod in pods.items()})
        self._due = {key: due for key, due in self._due.items() if key in missing}
        for key, pod in missing.items():
            await asyncio.sleep(0)
            is_first = key not in self._due
            if not is_first and self._due[key] > time.monotonic():
                continue
            pause = _OBSERVED_SECONDS  # until the watch shows it
            try:
                await self._write_claim_template(key, pod)
            except _NotWrittenError as error:
                pause = _RETRY_SECONDS
                if error.is_refused or not is_first:  # the replica may have the other policy in a moment
                    object_events.post_unwritten_template(self._poster, pod, key[1], str(error))
            self._due[key] = time.monotonic() + pause

    def _select_unwritten_templates(self, wanted: Mapping[states.Key, views.Pod]) -> Mapping[states.Key, views.Pod]:
        existing = self._state.claim_templates.by_key or {}
        return {key: pod for key, pod in wanted.items() if key not in existing or existing[key] is not None}

    async def _write_in_time(self, key: states.Key, pod: views.Pod) -> str:
        """Write the template of a workload within a limited time. Return the cause of a failure, otherwise ""."""
        try:
            async with asyncio.timeout(_WRITE_SECONDS):
                await self._write_claim_template(key, pod)
        except TimeoutError:
            return f"the API server did not answer within {_WRITE_SECONDS:g} s"
        except _NotWrittenError as error:
            return str(error)
        return ""

    async def _write_claim_template(self, key: states.Key, pod: views.Pod) -> None:
        """Write a template. Raises _NotWrittenError."""
        policy = self._get_policy()
        if policy is None:
            return
        group, _, resource = resources.CLAIM_TEMPLATES.path.rpartition("/")
        try:
            await self._client.post(f"{group}/namespaces/{key[0]}/{resource}", self._build_template(key, pod, policy))
        except errors.ClusterError as error:
            if error.status == _CONFLICT:  # another replica was first
                return
            cause = error.sentence
            if isinstance(error, errors.ApiError) and error.status == _FORBIDDEN:
                # its sentence is for the person who runs a command, who would look for rights of their own
                cause = f"the webhook may not create it: {errors.quote_message(error.message)}; {_FIX}"
            raise _NotWrittenError(cause, is_refused=True) from None

    def _build_template(self, key: states.Key, pod: views.Pod, policy: policies.Policy) -> object:
        """Return the template of this name that the policy in force gives to the pod. Raises _NotWrittenError."""
        namespace, name = key
        if (self._state.claim_templates.by_key or {}).get(key) is not None:
            raise _NotWrittenError(
                "a template of this name exists with other content than railwright writes; delete it"
            )
        try:
            plan = claim_requests.replan_claims(pod, policy, self._state.build_facts(namespace))
        except reason.RefusedError as error:
            raise _NotWrittenError(error.message) from None
        trees = plan.build_templates(namespace) if plan else []
        tree = next((tree for tree in trees if tree["metadata"]["name"] == name), None)
        if tree is None:
            raise _NotWrittenError(
                "the policy in force gives the pod another template or none; recreate the pod or its job"
            )
        return tree
