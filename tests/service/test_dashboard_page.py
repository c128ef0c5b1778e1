"""The dashboard's page in a real headless Chromium, over 1,024 simulated nodes served by the real commands."""

import contextlib
import json
import os
import pathlib
import re
import types

import dashboard_servers
import pytest
import pytest_asyncio
import reserved_ports
import varied_clusters

DATA = pathlib.Path(__file__).resolve().parents[1] / "data"
DRAWN = (
    "railwright.drawing.layout && railwright.store.gangs.length >= 40 && document.querySelectorAll('#gangs li').length"
)
FRAME = 16.0  # ms of our script in the middle one of the frames; with nothing beside it is under one
HOSTILE = "<img src=x onerror=alert(1)><script>alert(1)</script>"


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def shown(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vista")
    vista = varied_clusters.Vista()
    vista.write(folder)
    async with dashboard_servers.command(folder) as url:
        yield types.SimpleNamespace(url=url, folder=folder, vista=vista)


@contextlib.asynccontextmanager
async def opened(chrome, shown, **preferences: str):
    """Yield the drawn page in a browser with these preferences."""
    async with chrome.tab() as tab:
        await tab.prefer(**preferences)
        await tab.open(shown.url)
        await tab.until(DRAWN)
        yield tab


@pytest_asyncio.fixture(loop_scope="session")
async def tab(chrome, shown):
    """Yield the drawn page. An error in it, or a request to another host, fails the test."""
    async with opened(chrome, shown) as tab:
        yield tab
        assert tab.problems == []
        assert {request.split("/")[2] for request in tab.requests} == {shown.url.split("/")[2]}


@pytest.fixture
def reserved_port():
    """Yield the port of a server that ends and comes back."""
    with reserved_ports.reserve() as port:
        yield port


async def test_a_thousand_nodes_are_drawn_in_leaves_below_their_spines(tab):
    made = await tab.js(
        "(({spines, leaves, order}) => [spines.length, leaves.length, order.length])(railwright.drawing.layout)"
    )
    assert made == [8, 64, 1024]
    assert await tab.js("document.getElementById('connection').dataset.state") == "live"
    assert "1,024 nodes on 64 leaves" in await tab.js("document.getElementById('details').innerText")
    assert re.search(r"GPUs used\s\d+%", await tab.js("document.getElementById('numbers').innerText"))
    colours = (
        "const c = document.getElementById('canvas');"
        "const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data"
    )
    seen = await tab.js(
        f"(() => {{ {colours}; const seen = new Set(); for (let i = 0; i < d.length; i += 4)"
        "{ seen.add(d[i] * 65536 + d[i + 1] * 256 + d[i + 2]); } return seen.size; })()"
    )
    assert seen > 50  # an empty canvas has one colour


async def test_a_fabric_of_one_leaf_is_counted_in_the_singular(tab):
    texts = await tab.js(
        """(async () => {
          const { buildSummary } = await import("/page/summary.js");
          const fabric = railwright.store.getFabric(railwright.store.site.fabrics[0]);
          const one = { ...fabric, nodes: 1, leaves: fabric.leaves.slice(0, 1), gpus: 1, gpus_used: 1, leaves_free: 1 };
          one.largest = { pods: 1, gpus: 1, rails: 1 };
          const facts = buildSummary(one, [], railwright.store, {}).querySelectorAll(".facts li");
          return [...facts].map((fact) => fact.textContent);
        })()"""
    )
    assert texts[0] == "1 node on 1 leaf, 1 of them free"
    assert texts[2] == "1 of 1 GPU in use"
    assert texts[3].startswith("The largest gang that fits now has 1 pod with 1 GPU and 1 rail each")


async def test_both_mean_bandwidths_are_side_by_side(tab):
    figures = await tab.js(
        """(async () => {
          const { showNumbers } = await import("/page/summary.js");
          const list = document.createElement("dl");
          const placed = { state: "placed", outcome: "compact" };
          const gangs = [{ ...placed, bandwidth: 0.5, best: 1 }, { ...placed, bandwidth: 1, best: 0.9 }, { ...placed }];
          showNumbers(list, undefined, gangs, true);
          return Object.fromEntries([...list.children].map((it) => [...it.children].map((cell) => cell.textContent)));
        })()"""
    )
    assert figures["bandwidth/best"] == "0.75/1.00"


async def test_a_thousand_nodes_scroll_within_the_frame_budget(tab):
    for size in ("S", "M", "L"):
        await tab.js(f"document.querySelector('[data-size={size}]').click()")
        took = await tab.js(
            """(async () => {
              const { scroller } = railwright.drawing, took = [];
              const note = (entries) => took.push(...entries.map((each) => each.duration));
              const observer = new PerformanceObserver((list) => note(list.getEntries()));
              observer.observe({ type: "measure" });
              for (let at = 0; at < 40; at++) {
                scroller.scrollTop = at * 40;
                await new Promise(requestAnimationFrame);
              }
              note(observer.takeRecords());
              return took.sort((one, other) => one - other);
            })()"""
        )
        assert len(took) >= 20
        assert took[len(took) // 2] < FRAME, (size, took)


async def test_a_change_in_the_cluster_arrives_without_a_reload(tab, shown):
    key = shown.vista.add_gang(4, name="just-in-time", namespace="prod")
    shown.vista.write(shown.folder)
    await tab.until(f"railwright.store.getGang({json.dumps(key)})?.state === 'placed'")
    await tab.until(f"document.querySelector('#gangs li[data-key={json.dumps(key)}]')")
    row = await tab.js(f"document.querySelector('#gangs li[data-key={json.dumps(key)}]').textContent")
    assert "Gang" in row
    assert re.search(r"just-in-time prod (placed|spread)", " ".join(row.split()))
    assert "possible · 4 ranks" in row
    await tab.until("document.getElementById('status').textContent.includes('just-in-time')")


async def test_choosing_a_gang_shows_its_ranks_and_dims_the_others(tab):
    await tab.js("document.querySelector('#gangs li .state:is(.placed, .worse)').closest('li').click()")
    details = await tab.until("document.querySelector('#details .gang')?.innerText")
    assert "possible" in details
    assert "-worker-0" in details
    assert await tab.js("document.querySelector('#gangs li[aria-selected=true]') !== null")
    assert await tab.js("railwright.drawing.gang === railwright.selection.gang && railwright.selection.gang !== ''")


async def test_choosing_a_node_asks_why(tab):
    await tab.js(
        "document.querySelector('#gangs li .state.unplaceable, #gangs li .state.waiting').closest('li').click()"
    )
    x, y = await tab.js(
        "(() => { const d = railwright.drawing, c = d.layout.cells.get(d.layout.order[5]);"
        "const r = d.scroller.getBoundingClientRect();"
        "return [r.x + c.x + 10, r.y + c.y + 10 - d.scroller.scrollTop]; })()"
    )
    await tab.click(x, y)
    reason = await tab.until("document.querySelector('#details .reason')?.innerText")
    assert "Why " in reason or "What " in reason or "is here" in reason
    assert "rail0" in await tab.js("document.querySelector('#details .node').innerText")


async def test_every_function_works_by_keyboard(tab):
    await tab.press("Tab")
    assert await tab.js("document.activeElement.className") == "skip"
    await tab.press("/")
    assert await tab.js("document.activeElement.id") == "search"
    await tab.js("document.getElementById('drawing').focus()")
    first = await tab.js("railwright.drawing.cursor")
    for key in ("ArrowRight", "ArrowDown", "PageDown", "End", "Home"):
        before = await tab.js("document.getElementById('drawing').getAttribute('aria-activedescendant')")
        await tab.press(key)
        after = await tab.js("document.getElementById('drawing').getAttribute('aria-activedescendant')")
        assert before != after  # else a screen reader says nothing
    assert await tab.js("railwright.drawing.cursor") == await tab.js("railwright.drawing.layout.order[0]")
    await tab.press("ArrowRight")
    read = await tab.js(
        "document.getElementById(document.activeElement.getAttribute('aria-activedescendant')).textContent"
    )
    assert "leaf" in read
    assert "rails" in read
    await tab.press("Enter")
    await tab.until("document.querySelector('#details .node')")
    await tab.press("Escape")
    await tab.until("!document.querySelector('#details .node')")
    assert await tab.js("document.querySelectorAll('#gangs [tabindex=\"0\"]').length") == 1, "one stop of the tab key"
    await tab.js("document.querySelector('#gangs [tabindex=\"0\"]').focus()")
    await tab.press("ArrowDown")
    await tab.press("Enter")
    assert await tab.js("document.activeElement.getAttribute('aria-selected')") == "true"
    assert first


async def test_the_table_has_what_the_drawing_has(tab):
    await tab.js("document.querySelector('[data-form=table]').click()")
    await tab.until("document.querySelectorAll('#table tbody tr').length === 1024")
    row = await tab.js(
        "[...document.querySelectorAll('#table tbody tr')].find((each) => each.innerText.includes('busy')).innerText"
    )
    assert "rank" in row
    await tab.js("document.querySelector('#table button').click()")
    await tab.until("document.querySelector('#details .node')")


async def test_a_search_selects_nodes(tab, shown):
    await tab.js("document.getElementById('search').focus()")
    await tab.type(shown.vista.names[3])
    await tab.until("railwright.drawing.matches?.size === 1")


async def test_the_theme_is_the_systems_until_chosen(chrome, shown):
    async with opened(chrome, shown, prefers_color_scheme="dark") as tab:
        ground = "getComputedStyle(document.body).backgroundColor"
        dark = await tab.js(ground)
        await tab.js("document.getElementById('theme').click()")
        assert await tab.js(ground) != dark
        await tab.open(shown.url)
        await tab.until(DRAWN)
        assert await tab.js("document.documentElement.dataset.theme") == "light"


async def test_reduced_motion_stops_all_movement(chrome, shown):
    async with opened(chrome, shown, prefers_reduced_motion="reduce") as tab:
        assert await tab.js("getComputedStyle(document.querySelector('.score .value')).transitionDuration") == "0s"
        leaf = "railwright.drawing.layout.leaves[0].id"
        await tab.js(f"railwright.drawing.highlightChanges({{ nodes: [] }}, {leaf})")
        assert await tab.js("railwright.drawing.glowUntil.size") == 0


@pytest.mark.parametrize("cluster", ["refused", "an expired token"])
async def test_the_page_says_why_the_cluster_does_not_answer(chrome, faulty_clusters, tmp_path, cluster):
    (tmp_path / "policy.yaml").write_text(varied_clusters.POLICY)
    kubeconfig = faulty_clusters.kubeconfig(cluster, tmp_path)
    async with dashboard_servers.over(kubeconfig, tmp_path) as url, chrome.tab() as tab:
        await tab.open(url)
        await tab.until("document.getElementById('connection').dataset.state === 'away'")
        state = "access refused" if cluster == "an expired token" else "cluster unreachable"
        assert await tab.js("document.getElementById('connection-text').textContent") == state
        await tab.until("document.getElementById('problems').textContent.includes('; ')")  # the cause, then the fix
        problems = await tab.js("document.getElementById('problems').textContent")
        assert not re.search(r"Error|0x|/apis?/|not read yet", problems), problems


async def test_the_page_shows_that_the_cluster_goes_and_returns(chrome, tmp_path, reserved_port):
    server = dashboard_servers.write_small(tmp_path)
    connection = "document.getElementById('connection').dataset.state"
    async with contextlib.AsyncExitStack() as alive, chrome.tab() as tab:
        kubeconfig = await alive.enter_async_context(server.open(tmp_path, reserved_port))
        async with dashboard_servers.over(kubeconfig, tmp_path) as url:
            await tab.open(url)
            await tab.until(f"railwright.store.gangs.length && {connection} === 'live'")
            await alive.aclose()
            await tab.until(f"{connection} === 'away'")
            await tab.until("document.getElementById('problems').textContent.includes('nothing listens at')")
            assert await tab.js("railwright.store.gangs.length"), "what was known stays in view"
            async with server.open(tmp_path, reserved_port):
                await tab.until(f"{connection} === 'live'")


async def test_names_are_text_and_never_markup(chrome, tmp_path):
    vista = varied_clusters.Vista(1, 2, 4, gangs=1, waiting=0)
    key = vista.add_gang(2, name=HOSTILE, namespace="prod")
    vista.nodes[0]["metadata"]["name"] = vista.names[0] = HOSTILE
    vista.nodes[0]["metadata"]["labels"]["fabric.topograph.run/tier-0"] = HOSTILE
    vista.add_event(HOSTILE, HOSTILE)
    vista.write(tmp_path)
    async with dashboard_servers.command(tmp_path) as url, chrome.tab() as tab:
        await tab.open(url)
        await tab.until(f"railwright.store.getGang({json.dumps(key)})")
        row = f"document.querySelector(`#gangs li[data-key=${{CSS.escape({json.dumps(key)})}}]`)"
        await tab.until(row)
        await tab.js(f"{row}.click()")
        await tab.js(f"railwright.drawing.on.choose({json.dumps(HOSTILE)})")
        await tab.until("document.querySelector('#details .reason')?.innerText.includes('onerror')")
        await tab.js("document.querySelector('[data-form=table]').click()")
        await tab.until("document.querySelector('#table').innerText.includes('onerror')")
        shown = await tab.js("document.body.innerText")
        assert shown.count("onerror=alert(1)") > 3
        assert await tab.js("document.querySelectorAll('main img, body script').length") == 0
        assert tab.problems == []


async def test_the_browser_stops_foreign_scripts(chrome, shown):
    async with opened(chrome, shown) as tab:
        await tab.js(
            "addEventListener('securitypolicyviolation',"
            "(event) => (window.stopped ??= []).push(event.effectiveDirective))"
        )
        await tab.js(
            "document.head.append(Object.assign(document.createElement('style'), { textContent: 'p { color: red }' }))"
        )
        await tab.js("document.body.append(Object.assign(new Image(), { src: 'http://127.0.0.1:9/x.png' }))")
        thrown = await tab.js(
            "(() => { try { document.body.innerHTML = '<b>x</b>'; return ''; }"
            "catch (error) { return error.message; } })()"
        )
        assert "TrustedHTML" in thrown
        await tab.until("window.stopped?.includes('img-src') && window.stopped.includes('style-src-elem')")


async def test_the_page_shows_that_the_server_goes_and_returns(chrome, tmp_path, reserved_port):
    vista = varied_clusters.Vista(1, 2, 4, gangs=1, waiting=0)
    vista.write(tmp_path)
    at = ("--listen", f"127.0.0.1:{reserved_port}")
    async with chrome.tab() as tab:
        async with dashboard_servers.command(tmp_path, *at) as url:
            await tab.open(url)
            await tab.until("railwright.store.gangs.length")
        await tab.until("document.getElementById('connection').dataset.state === 'reconnecting'")
        assert "stale since" in await tab.until(
            "(({ textContent: it }) => it.includes('stale since') && it)(document.getElementById('connection-text'))"
        )
        assert await tab.js("railwright.store.gangs.length")  # what was known stays in view
        async with dashboard_servers.command(tmp_path, *at):
            await tab.until("document.getElementById('connection').dataset.state === 'live'")


async def test_the_page_of_the_extender_requests_a_token(chrome, tmp_path):
    server = dashboard_servers.write_small(tmp_path)
    async with (
        server.open(tmp_path) as kubeconfig,
        dashboard_servers.extender(kubeconfig, tmp_path) as address,
        chrome.tab() as tab,
    ):
        await tab.open(f"http://{address}/")
        await tab.until("!document.getElementById('token-back').hidden")
        assert await tab.js("document.activeElement.id") == "token-text"
        for token, reason in (("no-token", "does not know this token"), ("bob-token", "bob may not get /dashboard")):
            await tab.type(token)
            await tab.press("Enter")
            await tab.until(
                f"document.getElementById('token-reason').textContent.includes({reason!r})"
                "&& !document.getElementById('token-back').hidden"
            )
        await tab.type("ann-token")
        await tab.press("Enter")
        await tab.until("railwright.store.gangs.length")
        await tab.until("document.getElementById('connection').dataset.state === 'live'")
        assert await tab.js("document.getElementById('token-back').hidden")
        assert not [request for request in tab.requests if "token" in request]
        assert (
            await tab.js(
                "[location.href, document.cookie, JSON.stringify({ ...localStorage, ...sessionStorage })]"
                ".join().includes('-token')"
            )
            is False
        )


@pytest.mark.skipif(
    "RAILWRIGHT_PICTURES" not in os.environ, reason="RAILWRIGHT_PICTURES=1 draws docs/dashboard.png again"
)
async def test_the_picture_of_the_documentation(chrome, tmp_path):
    dashboard_servers.build_vista().write(tmp_path)
    async with dashboard_servers.command(tmp_path) as url, chrome.tab(1500, 1000) as tab:
        await tab.prefer(prefers_color_scheme="light")
        await tab.open(url)
        await tab.until(
            "railwright.store.gangs.length >= 9 && document.getElementById('connection').dataset.state === 'live'"
            "&& document.querySelector('#gangs li .state.worse')"
        )
        await tab.js("document.querySelector('#gangs li .state.worse').closest('li').click()")
        await tab.until("document.querySelector('#details .gang') && railwright.drawing.glowUntil.size === 0")
        await tab.picture(DATA.parents[1] / "docs" / "dashboard.png")
