"""`railwright certs rotate --watch`: for ever, in one of several replicas at a time.

Owns the process: who leads, how often it looks, what probes and metrics say, and how it ends. What is due is
`certs.rotation`'s.
"""

import argparse
import asyncio
import contextlib
import datetime as dt
import logging
import signal
import socket
import sys

from certs import rotation, rotator
from railwright.cli import kubeconfig, output
from railwright.cli.certificates import gauges, rotating
from railwright.cluster import client as clients
from railwright.cluster import errors, lease
from railwright.serving import logs, ops, probes, routes, settings

_LOG = logging.getLogger("railwright.certs")
_LONGEST_PAUSE = 30.0  # seconds between two looks, whatever fails
_MOST_DOUBLINGS = 16  # more makes no difference under that, and overflows after a night of a deleted Secret
_SILENT = 60.0  # seconds without a good look after which a leader is not ready
_UNAUTHORIZED = 401


async def watch(arguments: argparse.Namespace) -> int:
    """Rotate until a signal; gives the Lease back."""
    try:
        listen = settings.address(arguments.ops_listen)
    except ValueError as error:
        raise output.UnreadableError(f"--ops-listen {error}") from None
    logs.configure()
    client = await clients.connect(kubeconfig.choose(arguments.kubeconfig))
    try:
        watcher = Watcher(arguments, client, rotating.made(arguments, client))
        return await watcher.run(listen)
    finally:
        await client.close()


def pause(every: float, failed: int) -> float:
    """Seconds until the next look, after so many failures in a row."""
    return min(every * 2.0 ** min(failed, _MOST_DOUBLINGS), _LONGEST_PAUSE)


class Watcher:
    """One replica."""

    def __init__(self, arguments: argparse.Namespace, client: clients.Client, turning: rotator.Rotator) -> None:
        self._arguments, self._client, self._turning = arguments, client, turning
        self._gauges = gauges.Gauges()
        self._wake, self._stop = asyncio.Event(), asyncio.Event()
        self._good, self._told = lease.uptime(), ""
        self._election = lease.Election(
            client,
            arguments.namespace,
            arguments.lease,
            lease.identity(arguments.identity or socket.gethostname()),
            changed=self._changed,
        )
        self._checks = probes.Probes()
        self._checks.add("lease", self._lease_problem)
        self._checks.add("looks", self._look_problem)

    async def run(self, listen: settings.Address) -> int:
        """Stand, rotate, answer probes; until SIGTERM or SIGINT."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        table = (
            routes.Route("/livez", self._checks.live, "GET"),
            routes.Route("/readyz", self._checks.ready, "GET"),
            routes.Route("/metrics", self._scraped, "GET"),
        )
        async with ops.opened(listen, table) as address:
            sys.stderr.write(f"ops listening on {address}\n")
            sys.stderr.flush()
            tasks = [asyncio.create_task(each) for each in (self._election.run(), self._turn(), self._stop.wait())]
            ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for task in ended:
            if not task.cancelled() and (error := task.exception()) is not None:
                _LOG.critical("a task failed, so this process ends", exc_info=error)
                return output.FINDINGS
        return output.OK

    async def _turn(self) -> None:
        """A look each `every` seconds while leading; at once after a step, slower and slower while looks fail."""
        every, failed = self._arguments.every.total_seconds(), 0
        while True:
            if not self._election.leading:
                self._wake.clear()
                await self._wake.wait()
                continue
            try:
                found = await self._turning.step()
            except errors.ClusterError as error:
                failed += 1
                await self._failed(error)
            else:
                failed = 0
                self._succeeded(found)
                if isinstance(found, rotation.Step):
                    continue
            await asyncio.sleep(pause(every, failed))

    def _succeeded(self, found: rotation.Step | rotation.Wait) -> None:
        self._good, self._told = lease.uptime(), ""
        now = dt.datetime.now(dt.UTC)
        if self._turning.looked is not None and self._election.leading:
            self._gauges.show(self._turning.looked, now)
        if isinstance(found, rotation.Wait):
            self._gauges.last_success.set(now.timestamp())
            return
        self._gauges.steps.labels(found.action.value).inc()
        fields = {"step": found.action.value, "reason": found.reason, "leaves": found.names}
        _LOG.info("step done", extra={"fields": fields})

    async def _failed(self, error: errors.ClusterError) -> None:
        if isinstance(error, errors.ApiError) and error.status in rotator.OVERTAKEN:
            _LOG.info("overtaken by another writer, looking again", extra={"fields": {"error": str(error)}})
            return
        self._gauges.failures.inc()
        if str(error) != self._told:
            self._told = str(error)
            _LOG.warning("no step done", extra={"fields": {"error": error.sentence}})
        if isinstance(error, errors.ApiError) and error.status == _UNAUTHORIZED:
            with contextlib.suppress(errors.ConfigurationError):  # told with the next look
                await self._client.renew()

    def _changed(self, leading: bool) -> None:  # noqa: FBT001 - the election's way to tell
        self._gauges.leading.set(leading)
        self._good = lease.uptime()
        if leading:
            self._wake.set()
        else:
            self._turning.forget()
            self._gauges.stand_by()

    def _lease_problem(self) -> str | None:
        return (
            None if self._election.leading or self._election.holder else "nobody holds the Lease, or it is not read yet"
        )

    def _look_problem(self) -> str | None:
        silent = lease.uptime() - self._good
        if not self._election.leading or silent < _SILENT:
            return None
        return f"no good look at the certificates for {silent:.0f} s: {self._told or 'the log says more'}"

    def _scraped(self, _call: routes.Call) -> routes.Reply:
        return routes.Reply(self._gauges.exposition(), content_type=gauges.CONTENT_TYPE)
