"""A small driver of headless Chromium over its DevTools protocol: pages, scripts, keys, pictures and errors.

Owns one browser process and its tabs. Every wait is for a condition in the page, never a pause.
"""

import asyncio
import base64
import contextlib
import itertools
import json
import os
import pathlib
import tempfile
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import chromium

SECONDS = 120.0  # a loaded machine is slow, and a hung page must not hang the run
_KEYS = {"Enter": (13, "\r"), "Home": (36, ""), "ArrowRight": (39, "")}  # virtual key code, text


class PageError(Exception):
    """Raised if a script raises an exception or the browser rejects a command."""


class Tab:
    """One page. `problems` are its console errors and exceptions, `requests` the addresses that it requested."""

    def __init__(self, browser: "Browser", session: str) -> None:
        self._browser, self._session = browser, session
        self.problems: list[str] = []
        self.requests: list[str] = []

    def heard(self, method: str, params: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.problems.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.problems.append(" ".join(str(arg.get("value", arg)) for arg in params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":  # its warnings are hints about speed
            self.problems.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])

    async def send(self, method: str, **params: Any) -> dict[str, Any]:
        return await self._browser.send(method, params, self._session)

    async def open(self, url: str) -> None:
        await self.send("Page.navigate", url=url)
        await self.until("document.readyState === 'complete' && location.href !== 'about:blank'")

    async def js(self, expression: str) -> Any:
        """Return the value of an expression, awaited where it is a promise."""
        answer = await self.send("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise PageError(details.get("exception", {}).get("description") or details["text"])
        return answer["result"].get("value")

    async def until(self, condition: str) -> Any:
        """Return the first true value of an expression."""
        last: object = None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SECONDS):
                while True:
                    try:
                        if last := await self.js(
                            f"(() => {{ const it = ({condition}); return it instanceof Node || it; }})()"
                        ):
                            return last
                    except PageError as error:  # the page is not that far yet
                        last = error
                    await asyncio.sleep(0.03)  # between two looks at a condition
        problems = "; ".join(self.problems[:5])
        raise AssertionError(f"never true: {condition} (last {last!r}; the page's problems: {problems or 'none'})")

    async def press(self, key: str) -> None:
        code, text = _KEYS[key] if key in _KEYS else (ord(key.upper()), key)
        event = {"key": key, "windowsVirtualKeyCode": code}
        await self.send("Input.dispatchKeyEvent", type="keyDown", text=text, **event)
        await self.send("Input.dispatchKeyEvent", type="keyUp", **event)

    async def type(self, text: str) -> None:
        await self.send("Input.insertText", text=text)

    async def prefer(self, **features: str) -> None:
        """Set media features, such as prefers_color_scheme="dark"."""
        features_of_media = [{"name": name.replace("_", "-"), "value": value} for name, value in features.items()]
        await self.send("Emulation.setEmulatedMedia", features=features_of_media)

    async def resize(self, width: int, height: int) -> None:
        await self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )

    async def write_picture(self, path: pathlib.Path) -> None:
        answer = await self.send("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(answer["data"]))  # noqa: ASYNC240 - nobody else waits for this loop


class Browser:
    """One running Chromium."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._tabs: dict[str, Tab] = {}

    async def listen(self) -> None:
        async for message in self._socket:
            document = json.loads(message.data)
            waiting = self._waiting.pop(document.get("id", 0), None)
            if waiting is not None and not waiting.done():
                waiting.set_result(document)
            elif (tab := self._tabs.get(document.get("sessionId", ""))) is not None and "method" in document:
                tab.heard(document["method"], document["params"])

    async def send(self, method: str, params: dict[str, Any], session: str = "") -> dict[str, Any]:
        number = next(self._numbers)
        future = self._waiting[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json(
            {"id": number, "method": method, "params": params} | ({"sessionId": session} if session else {})
        )
        answer = await asyncio.wait_for(future, SECONDS)
        if "error" in answer:
            raise PageError(f"{method}: {answer['error']['message']}")
        result: dict[str, Any] = answer["result"]
        return result

    @contextlib.asynccontextmanager
    async def tab(self, width: int = 1440, height: int = 900) -> AsyncIterator[Tab]:
        """Yield a page in a profile of its own: no storage, cookie or cache of another."""
        context = (await self.send("Target.createBrowserContext", {}))["browserContextId"]
        target = await self.send("Target.createTarget", {"url": "about:blank", "browserContextId": context})
        attached = await self.send("Target.attachToTarget", {"targetId": target["targetId"], "flatten": True})
        tab = self._tabs[attached["sessionId"]] = Tab(self, attached["sessionId"])
        for domain in ("Page", "Runtime", "Log", "Network"):
            await tab.send(f"{domain}.enable")
        await tab.resize(width, height)
        try:
            yield tab
        finally:
            await self.send("Target.disposeBrowserContext", {"browserContextId": context})


@contextlib.asynccontextmanager
async def running() -> AsyncIterator[Browser]:
    """Run a browser during a `with` block. Raises chromium.MissingError."""
    chrome = await asyncio.to_thread(chromium.find)
    with tempfile.TemporaryDirectory(prefix="railwright-chromium-", ignore_cleanup_errors=True) as profile:
        process = await asyncio.create_subprocess_exec(
            chrome.program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", "--hide-scrollbars",
            "--remote-debugging-port=0", f"--user-data-dir={profile}", "about:blank",
            stderr=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL,
            env={**os.environ, **chrome.environment},
        )  # fmt: skip
        try:
            async with aiohttp.ClientSession() as session:
                url = await _debugger(pathlib.Path(profile) / "DevToolsActivePort", process)
                async with session.ws_connect(url, max_msg_size=0) as socket:
                    browser = Browser(socket)
                    listening = asyncio.create_task(browser.listen())
                    yield browser
                    listening.cancel()
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            await process.wait()


async def _debugger(port_file: pathlib.Path, process: asyncio.subprocess.Process) -> str:
    async with asyncio.timeout(SECONDS):
        while True:
            if process.returncode is not None:
                raise chromium.MissingError(f"Chromium ended at once with code {process.returncode}")
            written = port_file.read_text() if port_file.exists() else ""  # noqa: ASYNC240 - as above
            if len(lines := written.split()) == 2:
                return f"ws://127.0.0.1:{lines[0]}{lines[1]}"
            await asyncio.sleep(0.03)  # between two looks at a file that it writes when it is ready
