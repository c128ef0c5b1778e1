"""Gangs of Volcano in one namespace: installed, created, and waited for."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from plane import api, conditions, gangs, manifests, servers, site, volcano, waiting

LINGERS = "railwright.test/lingers"  # kwok lets a deleted pod with this annotation stay (kwok-stages.yaml)
_POD_GROUP = "scheduling.volcano.sh/v1beta1/PodGroup"


def job(
    name: str,
    workers: int,
    *,
    fabric: str = "rails",
    priority: str = "",
    annotations: Mapping[str, str] | None = None,
    **spec: Any,
) -> api.Object:
    """Return a Volcano Job that starts with all pods, each on a whole node."""
    classed = {"priorityClassName": priority} if priority else {}
    amounts = {resource: str(amount) for resource, amount in gangs.WHOLE.items()}
    container = {"resources": {"requests": amounts, "limits": amounts}}  # Volcano's queues do not count limits alone
    pod = manifests.pod("unused", fabric, container=container, annotations=annotations or {}, **classed)
    return manifests.volcano_job(name, pod, {"worker": workers}, **classed, **spec)


@dataclasses.dataclass
class VolcanoGangs:
    """The Volcano jobs of a test by name. Lists of pods are sorted by rank."""

    site: site.Site
    namespace: str

    @property
    def _api(self) -> api.Api:
        return self.site.plane.api

    async def install(
        self, policy: str = gangs.POLICY, *, arguments: Mapping[str, Any] | None = None, **configuration: Any
    ) -> servers.Server:
        """Create a policy, start an extender unless one runs, and have Volcano call it. Return the extender.

        `arguments` are more ones of the extender plugin, `configuration` those of `volcano.conf`.
        """
        extender = await self.site.install_extender(policy)
        plugin = volcano.extender(f"{self.site.proxy.url}/volcano", managed=gangs.RAILS, **(arguments or {}))
        await self.site.plane.schedulers.volcano(volcano.conf(plugin, **configuration))
        return extender

    async def create(self, name: str, workers: int, **kinds: Any) -> None:
        """Create a job, as `job` builds it."""
        await self._api.create(job(name, workers, **kinds), namespace=self.namespace)

    async def run(self, name: str, workers: int, **kinds: Any) -> api.Objects:
        """Create a job; return its pods once all run."""
        await self.create(name, workers, **kinds)
        return await self.wait_running(name, workers)

    async def pods(self, name: str) -> api.Objects:
        """Return the pods of a job."""
        listed = await self._api.list("Pod", self.namespace, labels=f"{gangs.VOLCANO_JOB}={name}")
        return sorted(listed, key=gangs.get_rank)

    async def wait_running(self, name: str, count: int) -> api.Objects:
        """Wait until exactly `count` pods of a job run, and return them."""
        labels = f"{gangs.VOLCANO_JOB}={name}"
        listed = await conditions.wait_running(self._api, self.namespace, labels, count, seconds=90)
        return sorted(listed, key=gangs.get_rank)

    async def assert_unplaced(self, name: str) -> None:
        """Assert that no pod of a job has a node."""
        assert not [pod["spec"]["nodeName"] for pod in await self.pods(name) if "nodeName" in pod["spec"]]

    async def wait_unschedulable(self, name: str, part: str = "") -> None:
        """Wait until Volcano reports that a job's PodGroup is unschedulable, in a message with this part.

        A session that begins before all pods of the job are created reports missing pods.
        """

        async def is_reported() -> bool:
            groups = await self._api.list(_POD_GROUP, self.namespace)
            mine = [group for group in groups if group["metadata"]["name"].startswith(f"{name}-")]
            conditions = [condition for group in mine for condition in group.get("status", {}).get("conditions", ())]
            words = [condition.get("message", "") for condition in conditions if condition["type"] == "Unschedulable"]
            assert any(part in message for message in words), f"conditions {conditions}"
            return True

        await waiting.wait(is_reported, seconds=60, describe=f"job {name} to be found unschedulable: {part}")

    async def end_terminating(self, leaving: api.Objects) -> None:
        """End terminating pods, as kubelet does, and wait until they are deleted."""
        change = {"metadata": {"annotations": {LINGERS: None}}}
        for pod in leaving:
            await self._api.patch("Pod", pod["metadata"]["name"], change, self.namespace)

        async def have_ended() -> bool:
            present = [await self._api.get_or_none("Pod", pod["metadata"]["name"], self.namespace) for pod in leaving]
            return all(
                now is None or now["metadata"]["uid"] != old["metadata"]["uid"]
                for now, old in zip(present, leaving, strict=True)
            )

        await waiting.wait(have_ended, describe="the pods to be gone")
