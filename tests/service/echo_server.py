"""The smallest server there can be on the shell; started by the tests of how a server ends."""

import os
import sys

from railwright.serving import logs, metrics, probes, processes, routes, server, settings


async def main(run: processes.Run) -> int:
    counters, checks = metrics.Metrics("webhook"), probes.Probes()
    counters.show_policy("sha256:old")
    counters.show_policy("sha256:new")
    checks.add("policy", lambda: "no policy yet" if "ECHO_UNREADY" in os.environ else None)
    table = (
        routes.Route("/echo", lambda call: routes.Reply(call.body), immediate=True),
        routes.Route("/pid", lambda _: routes.Reply(str(os.getpid()).encode())),
    )
    return await run(server.Server(OPTIONS, table, checks, counters), ())


if __name__ == "__main__":
    OPTIONS = settings.parse("webhook", sys.argv[1:], os.environ)
    logs.configure()
    sys.exit(processes.start(OPTIONS, main))
