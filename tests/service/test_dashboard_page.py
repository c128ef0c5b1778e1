"""The dashboard's page in a headless Chromium: it loads with data at two widths, in light and dark, and is used once.

test_dashboard.py tests the server.
"""

import json
import os
import pathlib

import browser
import chromium
import dashboard_servers
import pytest
import pytest_asyncio

ROOT = pathlib.Path(__file__).resolve().parents[2]
AXE = ROOT / "tests" / "data" / "axe.min.js"  # axe-core 4.14.1, as in its npm package
HOSTILE = "<img src=x onerror=alert(1)><script>alert(1)</script>"
CONNECTION = "document.getElementById('connection').dataset.state"
DETAILS = "document.getElementById('details').innerText"
READY = (
    f"railwright.store.gangs.length >= 11 && {CONNECTION} === 'live'&& document.querySelector('#gangs .state.worse')"
)
COLOURS = """(() => {
  const canvas = document.getElementById('canvas');
  const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  const seen = new Set();
  for (let at = 0; at < data.length; at += 4) seen.add(data[at] * 65536 + data[at + 1] * 256 + data[at + 2]);
  return seen.size;
})()"""
VIOLATIONS = (
    "axe.run({ rules: { 'target-size': { enabled: true } } }).then((report) =>"
    "report.violations.map(({ id, nodes: [it] }) => [id, it.html, it.failureSummary]))"
)


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def chrome():
    """Yield a headless Chromium."""
    try:
        async with browser.running() as running:
            yield running
    except chromium.MissingError as error:
        pytest.skip(str(error))


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def shown(tmp_path_factory):
    """Start the dashboard command on 193 nodes, one with a hostile name; yield (URL, API server, cluster)."""
    vista = dashboard_servers.build_pictured_cluster()
    vista.add_gang(2, name=HOSTILE, namespace="prod")
    vista.nodes.append({**vista.nodes[0], "metadata": {**vista.nodes[0]["metadata"], "name": HOSTILE, "uid": HOSTILE}})
    async with dashboard_servers.shown(tmp_path_factory.mktemp("shown"), vista) as (url, server):
        yield url, server, vista


async def choose_gang(page, key: str) -> None:
    await page.until(f"document.querySelector(`#gangs li[data-key=${{CSS.escape({json.dumps(key)})}}]`)")
    await page.js(f"document.querySelector(`#gangs li[data-key=${{CSS.escape({json.dumps(key)})}}]`).click()")
    await page.until("document.querySelector('#details .gang')")


@pytest.mark.parametrize(
    ("width", "height", "scheme"), [(390, 844, "dark"), (1440, 900, "light")], ids=["phone-dark", "laptop-light"]
)
async def test_the_page_shows_gangs_and_nodes_on_phone_and_laptop_without_accessibility_violations(
    chrome, shown, width, height, scheme
):
    async with chrome.tab(width, height) as page:
        await page.prefer(prefers_color_scheme=scheme)
        await page.open(shown[0])
        await page.until(READY)
        await page.until(f"{DETAILS}.includes('193 nodes on 12 leaves')")
        await page.until(f"{COLOURS} > 20")  # an empty drawing has one colour
        assert await page.js("getComputedStyle(document.documentElement).colorScheme") == scheme
        states = []
        for key in ("", "prod/llama-405b", f"prod/{HOSTILE}"):
            if key:
                await choose_gang(page, key)
                node = await page.js("railwright.store.getGang(railwright.selection.gang).ranks[0].node")
                await page.js(f"railwright.drawing.on.choose({json.dumps(node)})")
                await page.until("document.querySelector('#details .reason')?.innerText")
            assert await page.js("document.documentElement.scrollWidth") <= width, key
            states.append(await page.js("document.body.innerText"))
        assert "llama-405b-worker-0 is here" in states[1]
        assert states[2].count("onerror=alert(1)") > 3, "names are text"
        assert await page.js("document.querySelectorAll('main img, body script').length") == 0, "and never markup"
        assert page.problems == []
        assert {request.split("/")[2] for request in page.requests} == {shown[0].split("/")[2]}
        await page.js(AXE.read_text())  # breaks the Content-Security-Policy, which is a problem from here on
        assert await page.js(VIOLATIONS) == []


async def test_the_page_can_be_used_with_the_keyboard_and_shows_changes_of_the_cluster(chrome, shown):
    url, server, vista = shown
    async with chrome.tab() as page:
        await page.open(f"{url}#gang=prod/llama-405b")
        await page.until(f"{READY} && {DETAILS}.includes('20 of 24 placed')")
        await page.press("/")
        await page.type(vista.names[3])
        await page.until("railwright.drawing.matches?.size === 1")
        await page.js("document.getElementById('drawing').focus()")
        await page.press("Home")
        await page.press("ArrowRight")
        await page.press("Enter")
        node = await page.js("railwright.drawing.layout.order[1]")
        await page.until(f"{DETAILS}.includes('Node {node}')")
        assert await page.js("location.hash") == f"#gang=prod/llama-405b&node={node}"
        await page.js("document.querySelector('[data-form=table]').click()")
        await page.until("document.querySelector('#table tbody tr')")
        key = vista.add_gang(4, name="just-in-time", namespace="prod")
        server.release()
        await page.until(f"railwright.store.getGang({json.dumps(key)})?.state === 'placed'")
        await page.until("document.getElementById('status').textContent.includes('just-in-time')")
        assert page.problems == []


async def test_the_page_of_the_extender_takes_a_token_and_shows_that_its_server_is_gone(chrome, tmp_path):
    server = dashboard_servers.write_small(tmp_path)
    async with chrome.tab() as page:
        async with server.open(tmp_path) as kubeconfig, dashboard_servers.extender(kubeconfig, tmp_path) as address:
            await page.open(f"http://{address}/")
            await page.until("!document.getElementById('token-back').hidden")
            await page.type("bob-token")
            await page.press("Enter")
            await page.until("document.getElementById('token-reason').textContent.includes('bob may not get')")
            await page.until("!document.getElementById('token-back').hidden")
            await page.type("ann-token")
            await page.press("Enter")
            await page.until(f"railwright.store.gangs.length && {CONNECTION} === 'live'")
            stored = "[location.href, document.cookie, JSON.stringify({ ...localStorage, ...sessionStorage })]"
            assert "-token" not in "".join([*page.requests, *await page.js(stored)])
        await page.until(f"{CONNECTION} === 'reconnecting'")
        assert await page.js("railwright.store.gangs.length"), "what was known stays in view"


@pytest.mark.skipif(
    "RAILWRIGHT_PICTURES" not in os.environ, reason="RAILWRIGHT_PICTURES=1 draws docs/dashboard.png again"
)
async def test_the_picture_of_the_dashboard_is_drawn_for_the_documentation(chrome, tmp_path):
    dashboard_servers.build_pictured_cluster().write(tmp_path)
    async with dashboard_servers.command(tmp_path) as url, chrome.tab(1500, 1000) as tab:
        await tab.prefer(prefers_color_scheme="light")
        await tab.open(url)
        await tab.until(
            "railwright.store.gangs.length >= 9 && document.getElementById('connection').dataset.state === 'live'"
            "&& document.querySelector('#gangs li .state.worse')"
        )
        await tab.js("document.querySelector('#gangs li .state.worse').closest('li').click()")
        await tab.until("document.querySelector('#details .gang')")
        await tab.write_picture(ROOT / "docs" / "dashboard.png")
