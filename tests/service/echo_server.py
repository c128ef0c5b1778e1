"""A minimal server on `railwright.serving`, for the tests of a server's end."""

import sys

from aiohttp import web

from railwright.serving import application, logs, metrics, probes, server, settings


async def main() -> int:
    counters, checks = metrics.Metrics("webhook"), probes.Probes()
    app = application.build_application(application.Rules(max_body=1 << 20), [web.post("/echo", echo)])
    return await server.Server(OPTIONS, app, checks, counters).run()


async def echo(request: web.Request) -> web.Response:
    return application.build_response(request[application.BODY])


if __name__ == "__main__":
    OPTIONS = settings.parse("webhook", sys.argv[1:])
    logs.configure_logging()
    sys.exit(server.start(OPTIONS, main))
