"""The demo's result as a page on loopback, until the user stops it."""

import asyncio
import signal

from aiohttp import web


async def serve(html: str) -> None:
    """Serves one page on a free port of 127.0.0.1 and returns on SIGINT or SIGTERM."""

    async def page(_: web.Request) -> web.Response:
        return web.Response(text=html, content_type="text/html")

    application = web.Application()
    application.router.add_get("/", page)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        print(f"result:   http://{host}:{port}/  (Ctrl-C ends it)", flush=True)
        stopped = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stopped.set)
        await stopped.wait()
    finally:
        await runner.cleanup()
