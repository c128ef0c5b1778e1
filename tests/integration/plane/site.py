"""railwright installed on the plane: the real roles, the policy ConfigMap, both servers as their service accounts."""

import contextlib
import hashlib
import pathlib
from collections.abc import AsyncIterator, Sequence
from typing import Self

import yaml

from certs import inventory
from plane import guard, manifests, plane, reverse_proxy, servers, waiting

ROOT = pathlib.Path(__file__).resolve().parents[3]
BASE = ROOT / "manifests" / "base"
NAMESPACE, CONFIGMAP, KEY = "railwright-system", "railwright-policy", "policy.yaml"
_ROLES = (
    BASE / "webhook-rbac.yaml",
    BASE / "extender-rbac.yaml",
    ROOT / "manifests" / "components" / "claims" / "rbac.yaml",
)
_QUICK = ("--drain-seconds=0.2",)  # no replica takes over in a test


class Site:
    """One installation. Schedulers call its extenders through `proxy`. Call `policy` before the servers start."""

    def __init__(self, running: plane.Plane) -> None:
        self.plane = running
        self.webhook: servers.Server | None = None
        self.extender: servers.Server | None = None
        self.proxy = reverse_proxy.ReverseProxy()
        self._registered: list[str] = []
        self._text = ""  # of the policy

    async def prepare(self) -> None:
        """Create the namespace and the roles of the manifests, once for each control plane."""
        if await self.plane.api.get_or_none("Namespace", NAMESPACE) is None:
            await self.plane.make_namespace(NAMESPACE)
        for path in _ROLES:
            for document in yaml.safe_load_all(path.read_text()):
                await self.plane.api.ensure(document)

    async def policy(self, text: str) -> None:
        """Create or replace the policy ConfigMap. Does not wait until it is in force."""
        self._text = text
        data = {KEY: text}
        await self.plane.api.put(manifests.build("ConfigMap", CONFIGMAP, {"namespace": NAMESPACE}, data=data))

    async def install(self, text: str, *namespaces: str, options: Sequence[str] = ()) -> Self:
        """Create the policy, start a webhook unless one runs, and register it for these namespaces."""
        await self._put_in_force(text)
        if self.webhook is None or not self.webhook.process.running:
            await self.start_webhook(*options)
        if namespaces:
            await self.register(*namespaces)
        return self

    async def install_extender(self, text: str) -> servers.Server:
        """Create the policy, start an extender unless one runs, and return the extender."""
        await self._put_in_force(text)
        if self.extender is None or not self.extender.process.running:
            await self.start_extender()
        assert self.extender is not None
        return self.extender

    async def _put_in_force(self, text: str) -> None:
        """Create or replace the policy, and wait until the running servers have read it."""
        running = [server for server in (self.webhook, self.extender) if server and server.process.running]
        if running and text == self._text:
            return
        await self.policy(text)
        for server in running:
            await wait_policy(server, text)

    async def start_webhook(self, *options: str) -> servers.Server:
        """Start the webhook with TLS, as its own service account, and return it when it is ready."""
        certificate, key = self.plane.certificates.server("webhook-serving")
        self.webhook = await self.plane.serve(
            "webhook", f"--tls-cert={certificate}", f"--tls-key={key}", self.kubeconfig("webhook"), *_QUICK, *options
        )
        return await self.webhook.ready()

    async def start_extender(self, *options: str, has_tls: bool = False) -> servers.Server:
        """Start the extender as its own service account, behind the proxy, and return it when it is ready."""
        transport = ["--plain-http"]
        if has_tls:
            hosts = inventory.list_hosts("extender", NAMESPACE)
            certificate, key = self.plane.certificates.server("extender-serving", hosts)
            transport = [f"--tls-cert={certificate}", f"--tls-key={key}"]
        self.extender = await self.plane.serve("extender", *transport, self.kubeconfig("extender"), *_QUICK, *options)
        await self.extender.ready()
        self.proxy.backend = self.extender.port
        return self.extender

    async def register(self, *namespaces: str) -> None:
        """Register the running webhook for these namespaces."""
        assert self.webhook is not None, "start the webhook first"
        self._registered = list(namespaces)
        await self.plane.register_webhook(self.webhook.port, namespaces=namespaces)

    async def guard(self, *namespaces: str) -> None:
        """Enforce the admission policies of the manifests in these namespaces, until they are deleted."""
        for namespace in namespaces:
            await guard.put(self.plane.api, namespace)

    async def unregister(self) -> None:
        """Unregister the webhook, and stop enforcing the admission policies in its namespaces."""
        for namespace in self._registered:
            await guard.remove(self.plane.api, namespace)
        if self._registered:
            await self.plane.unregister_webhook(namespaces=self._registered)
        self._registered = []

    async def remove(self) -> None:
        """Remove the objects of a test, and reset the schedulers that it has changed."""
        await self.plane.schedulers.reset()
        await self.unregister()
        for server in (self.webhook, self.extender):
            if server is not None:
                await server.stop()
        await self.plane.api.delete("ConfigMap", CONFIGMAP, NAMESPACE)
        await self.proxy.close()

    def kubeconfig(self, account: str) -> str:
        """Return the option with which a server acts as its service account."""
        return act_as(self.plane, account)


def act_as(on: plane.Plane, account: str, *, namespace: str = NAMESPACE, name: str = "railwright") -> str:
    """Return the option with which a server acts as a service account of an installation."""
    user = f"system:serviceaccount:{namespace}:{name}-{account}"
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
    path = on.certificates.kubeconfig(f"{name}-{account}", on.parts.server, user, groups)
    return f"--kubeconfig={path}"


@contextlib.asynccontextmanager
async def running(on: plane.Plane) -> AsyncIterator[Site]:
    """Yield an installation without servers and policy, with an open proxy; all of it is removed at the end."""
    made = Site(on)
    await made.prepare()
    await made.proxy.open()
    try:
        yield made
    finally:
        await made.remove()


async def read_metric(server: servers.Server, name: str, **labels: str) -> float:
    """Return the sum of a metric's samples that carry these labels."""
    total = 0.0
    for line in (await server.metrics()).splitlines():
        given, _, value = line.rpartition(" ")
        if given.split("{")[0] == name and all(f'{key}="{value}"' in given for key, value in labels.items()):
            total += float(value)
    return total


async def wait_policy(server: servers.Server, text: str) -> None:
    """Wait until a policy is in force."""
    digest = f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"

    async def is_in_force() -> bool:
        return await read_metric(server, "railwright_policy_info", digest=digest) == 1

    await waiting.wait(is_in_force, describe=f"policy {digest} to be in force")


async def wait_metric(server: servers.Server, name: str, value: float, **labels: str) -> None:
    """Wait until a metric has this value."""

    async def is_reached() -> bool:
        seen = await read_metric(server, name, **labels)
        assert seen == value, f"{name}{labels} is {seen}"
        return True

    await waiting.wait(is_reached, describe=f"{name}{labels} to be {value}")
