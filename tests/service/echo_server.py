"""The smallest server there can be on the shell; started by the tests of how a server ends."""

import os
import sys

from railwright.serving import logs, metrics, probes, routes, server, settings


async def main() -> int:
    counters, checks = metrics.Metrics("webhook"), probes.Probes()
    table = (routes.Route("/echo", lambda call: routes.Reply(call.body)),)
    return await server.Server(OPTIONS, table, checks, counters).run()


if __name__ == "__main__":
    OPTIONS = settings.parse("webhook", sys.argv[1:], os.environ)
    logs.configure()
    sys.exit(server.start(OPTIONS, main))
