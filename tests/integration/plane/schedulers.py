"""Changes the configurations of the running schedulers, and waits until they are in force."""

import pathlib
import re
from collections.abc import Mapping
from typing import Any

import aiohttp
import yaml

from plane import components, processes, volcano, waiting

_LOADED = r"Finished loading scheduler config\. Final state: actions=.*"
_REFUSED = re.compile(r"Scheduler config .*? is invalid: (?P<why>[^\n]*)", re.DOTALL)  # it quotes all of the file
_SESSIONS = re.compile(r"^volcano_e2e_scheduling_latency_milliseconds_count\S* (\d+)", re.MULTILINE)


class Schedulers:
    """The two running schedulers, which a test may reconfigure."""

    def __init__(
        self, parts: components.Components, running: Mapping[str, processes.Process], session: aiohttp.ClientSession
    ) -> None:
        self._parts = parts
        self._running = running
        self._session = session
        self._changed: set[str] = set()
        self._in_force = {"volcano": _dump(volcano.conf()), "kube": _dump(self._kube_conf([]))}

    def prepare(self) -> None:
        """Write the first configurations, before the schedulers start."""
        self._parts.volcano_conf.parent.mkdir()
        self._write(self._parts.volcano_conf, self._in_force["volcano"])
        self._write(self._parts.kube_scheduler_conf, self._in_force["kube"])

    async def volcano(self, conf: Mapping[str, Any] | None = None, *, seconds: float = 30) -> None:
        """Set Volcano's configuration, by default the one without an extender, and wait until a session uses it.

        Raises AssertionError with Volcano's message if it refuses the configuration.
        """
        text = _dump(conf or volcano.conf())
        if self._in_force.get("volcano") == text:
            return
        self._changed.add("volcano")
        self._in_force.pop("volcano", None)
        process = self._running["vc-scheduler"]
        position = process.position()
        self._write(self._parts.volcano_conf, text)
        await process.wait_line(_LOADED, after=position, seconds=seconds)
        refused = _REFUSED.search(process.output(after=position))
        assert refused is None, f"Volcano refused the configuration: {refused and refused['why']}"
        await self.volcano_session(seconds=seconds)
        self._in_force["volcano"] = text

    async def volcano_session(self, *, seconds: float = 30) -> None:
        """Wait until a scheduling session has ended; the next one uses the current configuration and objects."""
        before = await self._sessions()

        async def have_ended() -> bool:
            return await self._sessions() > before

        await waiting.wait(have_ended, seconds=seconds, describe="a Volcano scheduling session to end")

    async def kube(self, *extenders: Mapping[str, Any]) -> None:
        """Restart kube-scheduler with these extenders in its configuration, unless it runs with them."""
        text = _dump(self._kube_conf([dict(extender) for extender in extenders]))
        process = self._running["kube-scheduler"]
        if self._in_force.get("kube") == text and process.running:
            return
        self._changed.add("kube")
        self._in_force.pop("kube", None)
        await process.stop()
        self._write(self._parts.kube_scheduler_conf, text)
        process.start(components.ENVIRONMENT)
        await wait_healthy(self._session, self._parts.health("kube-scheduler"), process)
        self._in_force["kube"] = text

    async def reset(self) -> None:
        """Undo the changes of a test, and only those, because each takes a second or two."""
        if "volcano" in self._changed:
            await self.volcano()
        if "kube" in self._changed:
            await self.kube()
        self._changed.clear()

    def _kube_conf(self, extenders: list[dict[str, Any]]) -> dict[str, Any]:
        kubeconfig = str(self._parts.certificates.folder / "kube-scheduler.kubeconfig")
        return components.kube_scheduler_conf(kubeconfig, extenders)

    async def _sessions(self) -> int:
        url = f"http://{components.LOOPBACK}:{self._parts.port['vc-scheduler']}/metrics"
        async with self._session.get(url) as answer:
            match = _SESSIONS.search(await answer.text())
        return int(match.group(1)) if match else 0

    @staticmethod
    def _write(path: pathlib.Path, text: str) -> None:
        """Put the file in place by a rename from outside the watched folder: one event, never half a file.

        The temporary name contains the plane's folder, because several planes can share the folder above.
        """
        temporary = path.parent.with_name(f".{path.parent.name}-{path.name}.new")
        temporary.write_text(text)
        temporary.replace(path)


def _dump(document: Mapping[str, Any]) -> str:
    return yaml.safe_dump(dict(document), sort_keys=False)


async def wait_healthy(
    session: aiohttp.ClientSession, health: components.Health, process: processes.Process, *, seconds: float = 60
) -> None:
    """Wait until the program's health check succeeds; fail at once if the program ends."""

    async def is_asked() -> bool:
        process.assert_running()
        try:
            async with session.get(health.url, timeout=aiohttp.ClientTimeout(total=5)) as answer:
                text = await answer.text()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise AssertionError(f"{health.url}: {error!r}") from None
        assert answer.status == health.status, f"{health.url}: {answer.status} {text[-1500:]}"
        return True

    await waiting.wait(
        is_asked,
        seconds=seconds,
        describe=lambda: f"{process.name} to be healthy; its log {process.log} ends:\n{process.tail()}",
    )
