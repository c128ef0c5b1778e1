"""railwright installed on a site as a user installs it: the chart with its default values, and our image."""

import json
import pathlib
import re
from typing import Any

from plane import api, commands, manifests, releases, waiting

from realnode import images, site

NAMESPACE = releases.NAMESPACE
DEPLOYMENTS = ("railwright-certs", "railwright-extender", "railwright-webhook")
_EXTENDER = f"/api/v1/namespaces/{NAMESPACE}/services/https:railwright-extender:8713/proxy"
_PART = "app.kubernetes.io/part-of=railwright"


class Installation:
    """railwright on a site."""

    def __init__(self, running: site.Site, image: images.Image, home: pathlib.Path) -> None:
        self.site, self.image, self._home = running, image, home
        self.plane = running.plane
        self.helm = releases.Helm(home, running.plane.kubeconfig, enter=running.plane.enter)
        repository, _, tag = image.name.rpartition(":")
        self.helm.options = (
            releases.WHOLE,
            f"--set=image.repository={repository},image.tag={tag}",
            "--set=webhook.claims=true",
        )

    async def install(self, policy: str) -> None:
        """Install the chart and the policy; returns when every Deployment is available."""
        await self.site.load(self.image)
        await self.helm.install("--create-namespace")
        await self.set_policy(policy)
        await self.wait_available()

    async def set_policy(self, text: str) -> None:
        """Create or replace the policy."""
        metadata, data = {"namespace": NAMESPACE}, {"policy.yaml": text}
        await self.plane.api.put(manifests.build("ConfigMap", "railwright-policy", metadata, data=data))

    async def wait_fabric(self, name: str, namespace: str) -> None:
        """Wait until the webhook knows a fabric of the policy."""

        async def is_known() -> bool:
            await self.plane.api.create(manifests.pod("asking", name), namespace=namespace, dry_run=True)
            return True

        await waiting.wait(is_known, describe=f"the webhook to know fabric {name}")

    async def wait_available(self) -> None:
        """Wait until every replica of the newest template is available and no other is left."""

        async def is_available() -> bool:
            for name in DEPLOYMENTS:
                deployment = await self.plane.api.get("apps/v1/Deployment", name, NAMESPACE)
                status, replicas = deployment["status"], deployment["spec"]["replicas"]
                counts = [status.get(key, 0) for key in ("availableReplicas", "updatedReplicas", "replicas")]
                assert counts == [replicas] * 3, f"{name}: {status}"
                assert status["observedGeneration"] == deployment["metadata"]["generation"]
            return True

        await waiting.wait(is_available, seconds=240, describe=self._explain)

    async def list_pods(self, component: str = "") -> list[dict[str, Any]]:
        """Return the pods of a component, or of all, that are not being deleted."""
        selector = f"{_PART},app.kubernetes.io/component={component}" if component else _PART
        pods = await self.plane.api.list("Pod", NAMESPACE, labels=selector)
        return [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]

    async def check(self, *options: str) -> dict[str, Any]:
        """Run `railwright check` as an administrator and return its report."""
        report: dict[str, Any] = json.loads(await self.run("check", "--output=json", *options))
        return report

    async def run(self, command: str, *options: str) -> str:
        """Run a command of railwright as an administrator. Return its output, with or without findings.

        Raises HopelessError for wrong usage, so that no caller tries again.
        """
        options = (*options, f"--kubeconfig={self.plane.kubeconfig}")
        program = (*self.plane.enter, *commands.RAILWRIGHT)
        code, output, errors = await commands.railwright(command, *options, program=program)
        if errors.startswith("usage: "):
            raise waiting.HopelessError(errors)
        assert code in (0, 1), errors
        return output

    async def verify_counters(self, job: str, namespace: str) -> str:
        """Run `railwright verify --counters` for a job, and return its output."""
        return await self.run("verify", f"job/{job}", f"--namespace={namespace}", "--counters", "--seconds=5")

    async def ask_extender(self, pod: api.Object, namespace: str, node: str) -> str:
        """Ask the extender, as kube-scheduler does, whether a pod may run on a node; return why not, or ""."""
        metadata = {"uid": pod["metadata"]["name"], **pod["metadata"], "namespace": namespace}
        body = {"Pod": {**pod, "metadata": metadata}, "NodeNames": [node]}
        answer = await self.plane.api.request("POST", f"{_EXTENDER}/scheduler/filter", body=body)
        rejections: dict[str, str] = {**answer["FailedNodes"], **answer["FailedAndUnresolvableNodes"]}
        assert [*rejections, *answer["NodeNames"]] == [node], answer
        return rejections.get(node, "")

    async def count_requests(self, path: str) -> int:
        """Return the number of schedulers' requests to a path that the extender's pods have answered."""
        counts = []
        for pod in await self.list_pods("extender"):
            metrics = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod['metadata']['name']}:8080/proxy/metrics"
            exposition = await self.plane.kubectl("get", f"--raw={metrics}")
            pattern = rf'^railwright_requests_total{{[^}}]*path="{path}"[^}}]*}} (\S+)$'
            counts += re.findall(pattern, exposition, re.MULTILINE)
        return int(sum(map(float, counts)))

    async def explain_pod(self, namespace: str, name: str) -> dict[str, Any]:
        """Run `railwright explain pod` as a user who may read pods, and return the answer."""
        path = self._home / "token"
        path.write_text(await commands.make_reader(self.plane, namespace))
        options = (f"{namespace}/{name}", f"--token-file={path}", "--output=json")
        answer: dict[str, Any] = json.loads(await self.run("explain", "pod", *options))
        return answer

    async def _explain(self) -> str:
        pods = await self.plane.kubectl("get", "pods", f"--namespace={NAMESPACE}", "--output=wide")
        events = await self.plane.kubectl("get", "events", f"--namespace={NAMESPACE}", "--sort-by=.lastTimestamp")
        logs = await self.plane.kubectl(
            *("logs", f"--namespace={NAMESPACE}", f"--selector={_PART}", "--tail=15", "--prefix", "--previous"),
            check=False,
        )
        return f"all Deployments of {NAMESPACE} to be available\n{pods}\n{events}\n{logs}"
