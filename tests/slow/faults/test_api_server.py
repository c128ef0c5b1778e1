"""Faults of a real API server: killed, unreachable, or it ends its watches."""

import asyncio
import contextlib
import pathlib
import time
from collections.abc import AsyncIterator

import aiohttp
import pytest_asyncio
from plane import (
    api,
    audit_log,
    binaries,
    components,
    credentials,
    manifests,
    processes,
    schedulers,
    servers,
    waiting,
)
from plane import site as sites

from railwright.cluster import resources
from railwright.fabric import views

STALE_SECONDS = 35  # over the longest pause between two tries: all are heard of again within it


def config_maps(namespace: str) -> resources.Kind:
    return resources.Kind("configmaps", f"/api/v1/namespaces/{namespace}/configmaps", views.ConfigMap)


def config_map(name: str) -> dict:
    return manifests.build("ConfigMap", name, data={"value": ""})


async def test_08_watches_ended_by_the_api_server_are_resumed(fault, plane, namespace, watch_by):
    user = f"system:serviceaccount:{sites.NAMESPACE}:watcher"  # of a group whose calls are in the audit log
    groups = ("system:masters", f"system:serviceaccounts:{sites.NAMESPACE}")
    config = plane.certificates.kubeconfig("watcher", plane.parts.server, user, groups)
    async with watch_by(kubeconfig=config, kind=config_maps(namespace), watch_seconds=1) as (source, cache, restarts):
        await source.synced.wait()
        began, number = time.monotonic(), 0
        while time.monotonic() - began < 3:  # timeoutSeconds is whole: each watch lives for one second
            await plane.api.create(config_map(f"made-{number}"), namespace=namespace)
            number += 1
        expected = [f"+made-{index}" for index in range(number)]
        await waiting.wait(lambda: expected[-1] in cache.changes, describe="the last event")
    additions = [change for change in cache.changes if change.startswith("+made-")]
    assert additions == expected, "each once, in order"
    assert restarts == []
    events = [event for event in audit_log.read(plane.parts.audit_log) if event["user"]["username"] == user]
    asked = [(event["verb"], event["stage"]) for event in events]
    lists, watches = asked.count(("list", "ResponseComplete")), asked.count(("watch", "ResponseStarted"))
    assert lists == 1, asked
    assert watches > 2, asked
    fault.saw(
        f"the real API server: 1 list, then {number} events over {watches} watches of 1 s, each delivered once, "
        "in order"
    )


# --- an API server of the tests' own ---------------------------------------------------------------------------

_ACCOUNT = f"system:serviceaccount:{sites.NAMESPACE}:"
_GROUPS = ("system:masters", f"system:serviceaccounts:{sites.NAMESPACE}")
_SERVER, _ETCD = "kube-apiserver", "etcd"


class Bare:
    """An etcd and an API server for the tests, which can kill and restart them. Created by `run_bare`.

    Nothing else runs there: no controller, no scheduler. Our servers have their accounts' names and all rights, so that
    the audit log has the account of each request.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        self.logs = folder / "logs"
        self.logs.mkdir(parents=True)
        self.certificates = credentials.Credentials(folder / "pki")
        self.parts = components.Components(binaries.locate(), self.certificates, folder)
        self.servers: list[servers.Server] = []
        self._processes: dict[str, processes.Process] = {}

    async def start(self) -> None:
        """Start both programs, wait until they are healthy, and create the namespace of an installation."""
        connector = aiohttp.TCPConnector(ssl=self.certificates.context(), limit=0)
        self.session = aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=30))
        self.api = api.Api(self.session, self.parts.server)
        await self._launch(_ETCD)
        await self.up()
        await self.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": sites.NAMESPACE}})

    async def up(self, *flags: str) -> None:
        """Start the API server with further flags, and wait until it is healthy."""
        await self._launch(_SERVER, *flags)

    async def down(self) -> None:
        """Kill the API server."""
        await self._processes[_SERVER].kill()

    async def serve(self, module: str, name: str, *options: str) -> servers.Server:
        """Return one of our servers, which uses plain HTTP and the account `name`."""
        process = servers.process(
            name,
            module,
            ("--plain-http", "--drain-seconds=0.2", f"--kubeconfig={self.kubeconfig(name)}", *options),
            self.logs,
        )
        self.servers.append(server := servers.Server(process, self.session))
        return await server.start()

    def kubeconfig(self, account: str) -> pathlib.Path:
        """Return a fresh kubeconfig."""
        return self.certificates.kubeconfig(account, self.parts.server, _ACCOUNT + account, _GROUPS)

    def lists(self, since: int = 0) -> dict[tuple[str, str], int]:
        """Return how often each account has listed each path successfully, from an offset of the audit log on."""
        numbers: dict[tuple[str, str], int] = {}
        for event in audit_log.read(self.parts.audit_log, since):
            if event["verb"] == "list" and event.get("responseStatus", {}).get("code") == 200:
                key = (event["user"]["username"].removeprefix(_ACCOUNT), event["requestURI"].partition("?")[0])
                numbers[key] = numbers.get(key, 0) + 1
        return numbers

    async def stop(self) -> None:
        """End everything."""
        await asyncio.gather(*(server.stop() for server in self.servers))
        for process in reversed(self._processes.values()):
            await process.kill()
        await self.session.close()

    async def _launch(self, name: str, *flags: str) -> None:
        process = processes.Process(name, [*self.parts.command(name), *flags], logs=self.logs)
        self._processes[name] = process.start()
        await schedulers.healthy(self.session, self.parts.health(name), process)


@contextlib.asynccontextmanager
async def run_bare(folder: pathlib.Path) -> AsyncIterator[Bare]:
    """Run both for the length of a `with` block."""
    made = Bare(folder)
    try:
        await made.start()
        yield made
    finally:
        await made.stop()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def own(tmp_path_factory):
    """Yield an API server for the tests of this file only."""
    async with run_bare(tmp_path_factory.mktemp("bare")) as running:
        yield running


async def put_policy(own: Bare, number: int) -> str:
    """Put a policy, and return its text."""
    rail = {"name": "rail0", "resource": "x.y/hca", "device": f"mlx5_{number}"}
    text = manifests.policy({"ib": manifests.fabric([rail])})
    metadata = {"namespace": sites.NAMESPACE}
    await own.api.put(manifests.build("ConfigMap", sites.CONFIGMAP, metadata, data={sites.KEY: text}))
    return text


class Reviews:
    """Sends reviews to a webhook continuously, as an API server does."""

    def __init__(self, own: Bare, webhooks: list[servers.Server]) -> None:
        self.session, self.webhooks = own.session, webhooks
        self.answered, self.wrong, self.slowest = 0, [], 0.0

    async def __aenter__(self):
        self._asking = [asyncio.create_task(self._ask(webhook)) for webhook in self.webhooks]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._asking:
            task.cancel()
        await asyncio.gather(*self._asking, return_exceptions=True)

    async def _ask(self, webhook: servers.Server) -> None:
        while True:
            began = time.monotonic()
            try:
                async with self.session.post(f"http://127.0.0.1:{webhook.port}/mutate/pods", json=REVIEW) as answer:
                    response = (await answer.json())["response"]
                if "patch" not in response:
                    self.wrong.append(str(response))
            except (aiohttp.ClientError, TimeoutError) as error:
                self.wrong.append(repr(error))
            self.answered += 1
            self.slowest = max(self.slowest, time.monotonic() - began)
            await asyncio.sleep(0.02)


REVIEW = {
    "apiVersion": "admission.k8s.io/v1",
    "kind": "AdmissionReview",
    "request": {
        "uid": "u",
        "operation": "CREATE",
        "namespace": sites.NAMESPACE,
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "object": manifests.pod("p", "ib"),
    },
}


async def assert_heard(own: Bare, running: list[servers.Server], number: int) -> None:
    """Assert that every server has the new policy, so that its watch works again."""
    text = await put_policy(own, number)
    for server in running:
        await sites.wait_policy(server, text, seconds=60)


async def test_06_each_kind_is_listed_at_most_once_after_an_api_server_restart(fault, own):
    await put_policy(own, 0)
    webhooks = [await own.serve("webhook", f"webhook-{number}") for number in range(2)]
    running = [*webhooks, await own.serve("extender", "extender")]
    await asyncio.gather(*(server.ready() for server in running))
    async with Reviews(own, webhooks) as reviews:
        before = reviews.answered
        await own.down()
        await waiting.wait(lambda: reviews.answered > before + 100, describe="reviews while it is away")
        away = reviews.answered - before
        since = own.parts.audit_log.stat().st_size
        await own.up()
        at = time.monotonic()
        await assert_heard(own, running, 1)
        seconds = time.monotonic() - at
    assert reviews.wrong == [], reviews.wrong[:3]
    lists = own.lists(since)
    # without one where the server still knows the versions from which the watches resume
    assert max(lists.values(), default=0) <= 1, lists
    for server in running:
        assert await sites.metric(server, "railwright_policy_valid") == 1
    fault.saw(
        f"{away} reviews answered while it was away and {reviews.answered - away} before and after, 0 without "
        "their patch; "
        f"{len(lists)} kinds of 3 servers listed, each once; the next policy in force {seconds:.1f} s after it was back"
    )
    for server in running:
        await server.stop()


async def test_07_without_an_api_server_only_the_webhook_answers(fault, own):
    await put_policy(own, 0)
    webhook = await own.serve("webhook", "webhook")
    extender = await own.serve("extender", "extender", f"--stale-seconds={STALE_SECONDS}")
    await asyncio.gather(webhook.ready(), extender.ready())

    async def get_readiness(server: servers.Server) -> tuple[int, str]:
        async with own.session.get(f"{server.ops_url}/readyz") as answer:
            return answer.status, await answer.text()

    async with Reviews(own, [webhook]) as reviews:
        await own.down()
        down = time.monotonic()

        async def find_stale() -> str:
            status, said = await get_readiness(extender)
            return said if status != 200 else ""

        said = await waiting.wait(find_stale, describe="the extender to be not ready", seconds=STALE_SECONDS + 10)
        seconds = time.monotonic() - down
        assert "no contact for too long" in said
        assert seconds > STALE_SECONDS / 2
        assert (await get_readiness(webhook))[0] == 200
        before = reviews.answered
        await waiting.wait(lambda: reviews.answered > before + 50, describe="more reviews")
        away = reviews.answered
        await own.up()
        up = time.monotonic()

        async def is_back() -> bool:
            return (await get_readiness(extender))[0] == 200

        await waiting.wait(is_back, describe="the extender to be ready again", seconds=60)
        again = time.monotonic() - up
    assert reviews.wrong == [], reviews.wrong[:3]
    for process in (webhook, extender):
        await process.stop()
    fault.saw(
        f"extender not ready after {seconds:.0f} s of --stale-seconds {STALE_SECONDS} (300 by default), with reason; "
        f"webhook ready, {away} reviews answered, 0 without their patch; ready {again:.1f} s after it was back"
    )
