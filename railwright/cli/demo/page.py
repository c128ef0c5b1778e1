"""Serves the demo's result as a page on loopback until the user stops it."""

import asyncio
import io
import signal

from aiohttp import web
from rich import console, terminal_theme
from rich.console import RenderableType

WIDTH = 120  # characters, without a terminal
_THEME = terminal_theme.TerminalTheme(
    (17, 26, 43),
    (232, 238, 251),
    [
        (163, 177, 201), (255, 107, 122), (74, 222, 128), (240, 161, 58),
        (125, 176, 255), (214, 140, 255), (94, 220, 230), (232, 238, 251),
    ],
)  # fmt: skip
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>railwright demo</title>
<style>
{stylesheet}
body {{ color: {foreground}; background: {background}; margin: 0; font: 15px/1.5 system-ui, sans-serif; }}
main {{ max-width: 1180px; margin: 0 auto; padding: 20px 16px 48px; }}
pre {{ overflow-x: auto; font: 14px/1.4 ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; }}
@media (width < 760px) {{ pre {{ font-size: 11px; }} }}
</style>
</head>
<body>
<main>
<h1>railwright demo</h1>
<p>A job admitted and placed by the real webhook and the real extender, on a simulated fabric.</p>
<pre>{code}</pre>
</main>
</body>
</html>
"""


def build_html(content: RenderableType) -> str:
    """Return the output as a page, with light text on a dark background whatever the terminal's colours are."""
    recording = console.Console(record=True, file=io.StringIO(), width=WIDTH, color_system="truecolor")
    recording.print(content)
    return recording.export_html(theme=_THEME, code_format=_PAGE)


async def serve(html: str) -> None:
    """Serve one page on a free port of 127.0.0.1; return on SIGINT or SIGTERM."""

    async def page(_: web.Request) -> web.Response:
        return web.Response(text=html, content_type="text/html")

    application = web.Application()
    application.router.add_get("/", page)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        print(f"result:   http://{host}:{port}/  (Ctrl-C to stop)", flush=True)
        stopped = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stopped.set)
        await stopped.wait()
    finally:
        await runner.cleanup()
