"""An operator's use of the dashboard's page, in a real headless Chromium and with the real commands."""

import contextlib
import json
import re

import api_stub
import dashboard_servers
import msgspec
import pytest
import pytest_asyncio
import varied_clusters

from railwright.cli import dashboard as command
from railwright.cluster import policies
from railwright.dashboard import application
from railwright.fabric import node_views, views
from railwright.fabric.overview import overview_builder, pods_and_events
from railwright.fabric.placement.state import assumed_pods, cluster_state
from railwright.serving import settings

READY = (
    "railwright.store.gangs.length >= 10 && document.getElementById('connection').dataset.state === 'live'"
    "&& document.querySelector('#gangs .state.worse')"
)
STATE = "document.getElementById('connection').dataset.state"
DETAILS = "document.getElementById('details').innerText"
PROBLEMS = "document.getElementById('problems').innerText"
NEXT_LABEL = (
    "(button) => new Promise((done) => new MutationObserver(() => done(button.textContent))"
    ".observe(button, { childList: true }))"
)


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def shown(tmp_path_factory):
    """Yield a dashboard by its command; (URL, folder, vista)."""
    folder = tmp_path_factory.mktemp("use")
    vista = dashboard_servers.build_vista()
    vista.write(folder)
    async with dashboard_servers.command(folder) as url:
        yield url, folder, vista


@pytest_asyncio.fixture(loop_scope="session")
async def tab(chrome, shown):
    async with chrome.tab() as page:
        await page.open(shown[0])
        await page.until(READY)
        yield page
        assert page.problems == []


def click(selector: str) -> str:
    return f"document.querySelector({json.dumps(selector)}).click()"


def choose(select: str, value: str) -> str:
    return (
        f"(() => {{ const field = document.getElementById({select!r}); field.value = {value!r};"
        "field.dispatchEvent(new Event('change')); })()"
    )


SPREAD = "railwright.store.gangs.find((gang) => gang.outcome === 'spread')"


# --- links --------------------------------------------------------------------------------------------------------


async def test_the_selection_is_in_the_address(tab):
    key = await tab.js(f"{SPREAD}.key")
    await tab.js(click(f"#gangs li[data-key='{key}']"))
    assert await tab.js("location.hash") == f"#gang={key}"
    node = await tab.js(f"{SPREAD}.ranks[0].node")
    await tab.js(f"railwright.drawing.on.choose({node!r})")
    assert await tab.js("location.hash") == f"#gang={key}&node={node}"
    await tab.js("history.back()")
    await tab.until("railwright.selection.node === '' && document.querySelector('#details .gang')")
    await tab.js("history.back()")
    await tab.until("railwright.selection.gang === '' && document.querySelector('#details .summary')")
    await tab.js("history.forward()")
    await tab.until(f"railwright.selection.gang === {key!r}")


async def test_a_link_opens_its_gang_node_or_rail(chrome, shown):
    url, _, vista = shown
    for fragment, expected in (
        ("#gang=prod/llama-405b", "20 of 24 placed"),
        (f"#node={vista.names[5]}", f"Node {vista.names[5]}"),
        ("#rail=rail3", "Rail rail3"),
        (f"#node={vista.names[5]}&rail=rail3", f"Node {vista.names[5]}"),
    ):
        async with chrome.tab() as page:
            await page.open(url + fragment)
            await page.until(f"{DETAILS}.includes({expected!r})")
            assert await page.js("location.hash") == fragment
            if "&rail" in fragment:
                await page.until("document.querySelector('#details tr.chosen')?.innerText.startsWith('rail3')")


@pytest.mark.parametrize(
    ("fragment", "text"),
    [
        ("#gang=prod/gone", "Gang prod/gone does not exist now"),
        ("#node=gone-1", "Node gone-1 does not exist now"),
        ("#rail=rail99", "Rail rail99 does not exist now"),
    ],
)
async def test_a_link_to_a_missing_object_says_so(chrome, shown, fragment, text):
    async with chrome.tab() as page:
        await page.open(shown[0] + fragment)
        await page.until(f"{DETAILS}.includes({text!r})")
        await page.js(click("#details .missing button"))
        await page.until("document.querySelector('#details .summary')")
        assert await page.js("location.hash") == ""


async def test_a_shown_gang_that_ends_is_reported(chrome, tmp_path):
    vista = varied_clusters.Vista(1, 2, 4, gangs=1, waiting=0)
    key = vista.add_gang(2, name="short", namespace="prod")
    vista.write(tmp_path)
    async with dashboard_servers.command(tmp_path) as url, chrome.tab() as page:
        await page.open(f"{url}#gang={key}")
        await page.until("document.querySelector('#details .gang')")
        vista.pods = [pod for pod in vista.pods if not pod["metadata"]["name"].startswith("short")]
        vista.write(tmp_path)
        await page.until(f"{DETAILS}.includes('Gang prod/short does not exist now')")


async def test_a_skip_link_keeps_the_selection(tab):
    await tab.js(click("#gangs li"))
    await tab.js(click("a.skip[href='#drawing']"))
    await tab.until("location.hash === '#drawing'")
    assert await tab.js("railwright.selection.gang !== ''")


# --- states, ages, figures ----------------------------------------------------------------------------------------


async def test_a_spread_gang_is_amber_and_described_as_in_events(tab):
    row = f"document.querySelector(`#gangs li[data-key='${{{SPREAD}.key}}'] .state`)"
    text, title, colour = await tab.js(f"[{row}.textContent, {row}.title, getComputedStyle({row}).color]")
    assert (text, title) == ("spread", "GangSpread")
    amber = await tab.js(
        "(() => { const i = document.createElement('i'); i.style.color = 'var(--weak)'; document.body.append(i);"
        "const colour = getComputedStyle(i).color; i.remove(); return colour; })()"
    )
    assert colour == amber
    await tab.js(choose("state", "worse"))
    await tab.until("[...document.querySelectorAll('#gangs .state')].every((it) => it.classList.contains('worse'))")
    assert await tab.js("document.querySelectorAll('#gangs li').length") > 0


async def test_reasons_have_codes(tab):
    await tab.js(click("#gangs li .state.worse"))
    codes = await tab.js("[...document.querySelectorAll('#details .reasons code')].map((it) => it.textContent)")
    assert codes
    assert all(re.fullmatch(r"[A-Z][A-Za-z]+", code) for code in codes)


async def test_ages_have_the_absolute_time_in_the_title(tab):
    await tab.js(click("#gangs li .state.worse"))
    await tab.until("document.querySelector('#details .gang time')")
    text, title = await tab.js(
        "(({ textContent, title }) => [textContent, title])(document.querySelector('.gang time'))"
    )
    assert re.fullmatch(r"\d+ (s|min|h|d) ago", text)
    assert "2026" in title
    assert re.search(r"placed \d+ (s|min|h|d) ago, waited \d+ h", await tab.js(DETAILS))
    await tab.js(click("#gangs li[data-key='prod/llama-405b']"))
    assert re.search(r"waiting since \d+ (s|min|h|d) ago", await tab.js(DETAILS))


async def test_the_header_counts_what_is_used_and_what_fits(tab):
    fabric = "railwright.store.getFabric('roce')"
    figures = dict(
        await tab.js(
            "[...document.querySelectorAll('#numbers div')].map((it) =>"
            "[it.querySelector('dt').textContent, it.querySelector('dd').textContent])"
        )
    )
    used, free, gpus, gpus_used, leaves_free, pods, dead = await tab.js(
        f"(({{ rails_busy, rails_free, gpus, gpus_used, leaves_free, largest, rails_dead }}) =>"
        f"[rails_busy, rails_free, gpus, gpus_used, leaves_free, largest.pods, rails_dead])({fabric})"
    )
    assert figures["rails used"] == f"{used / (used + free):.0%}"
    assert figures["GPUs used"] == f"{gpus_used / gpus:.0%}"
    assert figures["free leaves"] == f"{leaves_free}/12"
    assert (figures["fits now"], figures["dead rails"]) == (str(pods), str(dead))
    assert f"has {pods} pods with 8 GPUs and 8 rails each" in await tab.js(DETAILS)


async def test_the_policy_has_its_name_and_age(tab):
    assert re.search(
        r"policy in policy\.yaml, \d+ \w+ old", await tab.js("document.getElementById('source').innerText")
    )


async def test_a_rail_that_fails_while_the_page_is_open_has_an_age(chrome, tmp_path):
    vista = varied_clusters.Vista(1, 1, 4, gangs=0, waiting=0)
    vista.write(tmp_path)
    async with dashboard_servers.command(tmp_path) as url, chrome.tab() as page:
        await page.open(f"{url}#node={vista.names[0]}")
        await page.until("document.querySelector('#details .node')")
        status = vista.nodes[0]["status"]
        vista.nodes[0]["status"] = {
            **status,
            "allocatable": {**status["allocatable"], varied_clusters.RESOURCES[2]: "0"},
        }
        vista.write(tmp_path)
        await page.until(f"/rail2\\s+dead, first seen \\d+ s ago/.test({DETAILS})")


async def test_a_cordon_has_its_reason_and_its_age(chrome, tmp_path):
    vista = varied_clusters.Vista(1, 1, 4, gangs=0, waiting=0)
    cordon = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule", "timeAdded": "2026-11-21T09:00:00Z"}
    fault = {"key": "gpu-fault", "value": "xid-79", "effect": "NoSchedule"}
    vista.nodes[0]["spec"] = {"unschedulable": True, "taints": [cordon, fault]}
    vista.nodes[0]["metadata"]["annotations"] = {"repair.example/cordon-reason": "XID 79 on GPU 3"}
    vista.write(tmp_path)
    async with dashboard_servers.command(tmp_path) as url, chrome.tab() as page:
        await page.open(f"{url}#node={vista.names[0]}")
        note = await page.until("document.querySelector('#details .node .note')?.innerText")
        assert re.fullmatch(
            r"cordoned; repair\.example/cordon-reason: XID 79 on GPU 3, since \d+ \w+ ago; "
            r"taints: gpu-fault=xid-79:NoSchedule",
            note,
        )


# --- filters, admissions, Events ----------------------------------------------------------------------------------


async def test_the_namespace_filter_limits_gangs_and_admissions(tab):
    await tab.js(choose("namespace", "research"))
    await tab.until("[...document.querySelectorAll('#gangs small')].every((it) => it.textContent === 'research')")
    await tab.until("[...document.querySelectorAll('#admissions small')].every((it) => it.textContent === 'research')")
    assert await tab.js("document.querySelectorAll('#gangs li').length") > 0
    assert await tab.js("document.querySelectorAll('#admissions tr').length") > 0


async def test_the_filter_shows_only_broken_nodes(tab):
    await tab.js(click("#broken"))
    await tab.until("railwright.drawing.matches?.size > 0")
    broken = await tab.js("[...railwright.drawing.matches].map((name) => railwright.store.getNode('roce', name).node)")
    assert broken
    assert all(node.get("note") or re.search("[dw]", node["rails"]) for node in broken)
    await tab.js(click("[data-form=table]"))
    await tab.until(f"document.querySelectorAll('#table tbody tr').length === {len(broken)}")


async def test_the_pod_that_holds_a_rail_is_shown(tab):
    await tab.js(choose("rail", "rail3"))
    await tab.until("document.querySelector('#details .rail-details')")
    rows = await tab.js(
        "[...document.querySelectorAll('.rail-details tbody:last-of-type tr')].map((it) => it.innerText)"
    )
    counted = sum(int(row.split()[-1]) for row in rows)
    held = await tab.js(
        "railwright.store.listNodes('roce').filter(({ node }) =>"
        "(node.pods ?? []).some((pod) => pod.rails.includes(3))).length"
    )
    assert counted == held == await tab.js("railwright.drawing.matches.size")
    await tab.js(
        "[...document.querySelectorAll('.rail-details .link')]"
        ".find((it) => it.textContent.includes('llama-405b')).click()"
    )
    await tab.until("railwright.selection.gang === 'prod/llama-405b' && railwright.selection.rail === ''")


async def test_admissions_of_a_gang_are_one_row(tab):
    rows = await tab.js(
        "[...document.querySelectorAll('#admissions tr')].map((it) => it.innerText.replace(/\\s+/g, ' '))"
    )
    assert len(rows) == await tab.js("railwright.store.gangs.length")
    assert any(re.search(r"llama-405b: 24 pods prod injected roce 8 11", row) for row in rows), rows


async def test_events_have_reason_object_and_repetitions(tab):
    await tab.js(click("[data-log=events]"))
    row = await tab.until("document.querySelector('#events tr')?.innerText")
    assert "FabricRefused" in row
    assert "Job bert-9 prod" in " ".join(row.split())
    assert "(3 times)" in row


async def test_an_empty_list_says_so_inside_its_panel(tab):
    await tab.js("document.getElementById('search').focus()")
    await tab.type("no such thing")
    await tab.until("!document.getElementById('gangs-none').hidden")
    text, panel = await tab.js(
        "['#gangs-none', '.side'].map((it) => document.querySelector(it).getBoundingClientRect().toJSON())"
    )
    assert panel["top"] + 60 < text["top"]
    assert text["bottom"] <= panel["bottom"] - 8
    assert text["left"] >= panel["left"] + 1
    assert await tab.js("parseFloat(getComputedStyle(document.getElementById('gangs-none')).paddingLeft)") >= 8


# --- details ------------------------------------------------------------------------------------------------------


async def test_a_placed_rank_shows_the_terms_of_a_new_placement(tab):
    await tab.js("railwright.drawing.on.choose(railwright.store.getGang('prod/llama-405b').ranks[0].node)")
    text = await tab.until(
        "document.querySelector('#details .reason h4') && document.querySelector('#details .reason').innerText"
    )
    assert "prod/llama-405b-worker-0 is here" in text
    assert re.search(
        r"This is where it is\. If it were placed now, its own devices counted as free: [\d.]+ of 100\.", text
    )
    assert "rails free" not in text, "that contradicts the busy rails below; it is folded away"
    await tab.js("document.querySelector('#details summary').click()")
    assert "rails free" in await tab.js("document.querySelector('#details .reason').innerText")


async def test_commands_can_be_copied_with_the_keyboard(chrome, shown):
    url, _, vista = shown
    async with chrome.tab() as page:
        await page.grant("clipboardReadWrite", "clipboardSanitizedWrite")
        await page.open(f"{url}#node={vista.names[0]}")
        await page.until("document.querySelector('#details .reason .copy')")
        pod = await page.js("railwright.store.getNode('roce', railwright.selection.node).node.pods[0].pod")
        namespace, _, name = pod.partition("/")
        expected = (f"kubectl describe node {vista.names[0]}", f"kubectl railwright explain pod/{name} -n {namespace}")
        for index, text in enumerate(expected):
            button = f"document.querySelectorAll('#details .copy')[{index}]"
            assert await page.js(f"{button}.getAttribute('aria-label')") == f"Copy: {text}"
            await page.js(f"{button}.focus()")
            await page.js(f"window.labelled = ({NEXT_LABEL})({button}), 0")  # it says so for two seconds only
            await page.press("Enter")
            assert await page.js("window.labelled") == "Copied"
            assert await page.js("navigator.clipboard.readText()") == text


async def test_a_name_with_special_characters_is_quoted_for_the_shell(tab):
    quoted = await tab.js(
        "import('/page/details.js').then(({ buildCommand }) =>"
        "buildCommand(['kubectl', 'describe', 'node', \"a'; rm -rf $HOME\"]).querySelector('code').textContent)"
    )
    assert quoted == "kubectl describe node 'a'\\''; rm -rf $HOME'"


# --- the state of the cluster -------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def serve(folder, **sets):
    """Yield the URL of a dashboard over an API server."""
    server = dashboard_servers.write_small(folder)
    for name, plurals in sets.items():
        getattr(server, name).update(plurals)
    async with server.open(folder) as kubeconfig, dashboard_servers.over(kubeconfig, folder) as url:
        yield url


async def test_a_list_that_is_not_read_yet_is_named(chrome, tmp_path):
    silent = {"pods", "hypernodes", "xgboostjobs", "noderesourcetopologies"}
    async with serve(tmp_path, silent=silent) as url, chrome.tab() as page:
        await page.open(url)
        await page.until(f"{STATE} === 'reading' && railwright.store.getFabric('roce')?.nodes === 8")
        expected = (
            "Not read yet: pods, Volcano's HyperNodes, NUMA topologies of nodes, "
            "jobs and PodGroups that state gang sizes."
        )
        await page.until(f"{PROBLEMS} === {json.dumps(expected)}")
        assert await page.js("document.getElementById('connection-text').textContent") == "reading the cluster"


async def test_a_forbidden_list_is_named_with_the_cause(chrome, tmp_path):
    async with serve(tmp_path, forbidden={"hypernodes"}) as url, chrome.tab() as page:
        await page.open(url)
        await page.until(f"{STATE} === 'incomplete'")
        text = await page.until(f'{PROBLEMS}.startsWith("Not shown: Volcano\'s HyperNodes: ") && {PROBLEMS}')
        assert "you may not list hypernodes.topology.volcano.sh -A (403 Forbidden" in text
        assert await page.js("document.getElementById('connection-text').textContent") == "live, incomplete"


async def test_numbers_of_an_unread_cluster_are_dashes(chrome, tmp_path):
    async with serve(tmp_path, forbidden={"nodes", "pods"}) as url, chrome.tab() as page:
        await page.open(url)
        await page.until(f"{STATE} === 'away'")
        numbers = await page.js("[...document.querySelectorAll('#numbers dd')].map((it) => it.textContent)")
        assert set(numbers) == {"\N{EN DASH}"}
        assert (await page.js(PROBLEMS)).startswith("The cluster cannot be read: ")


async def test_the_terminal_shows_why_the_cluster_does_not_answer(tmp_path):
    (tmp_path / "policy.yaml").write_text(varied_clusters.POLICY)
    options = ("--kubeconfig", api_stub.kubeconfig(tmp_path, 1), "--policy", str(tmp_path / "policy.yaml"))
    async with dashboard_servers.started("nothing listens at ", "dashboard", *options, out="stderr") as address:
        assert address == "http://127.0.0.1:1;"


# --- several views ------------------------------------------------------------------------------------------------


def build_feed(nodes: int) -> application.Feed:
    """Return a feed over `count` nodes and the gang train/llm with a pod on each."""
    cluster, pods = cluster_state.ClusterState(), pods_and_events.OptedInPods()
    vista = varied_clusters.Vista(1, 1, nodes, gangs=0, waiting=0)
    vista.add_gang(2, name="llm", namespace="train")
    cluster.replace_nodes([msgspec.convert(node, node_views.Node) for node in vista.nodes])
    admitted = [msgspec.convert(pod, views.Pod) for pod in vista.pods]
    cluster.replace_pods(admitted)
    pods.replace(admitted)
    policy = policies.read(varied_clusters.POLICY)
    assumed = assumed_pods.AssumedPods(assume_seconds=1)
    builder = overview_builder.OverviewBuilder(cluster, assumed, pods, lambda: policy, {})
    return application.Feed(builder, source=f"{nodes} nodes")


async def test_a_switch_of_views_keeps_the_selection(chrome):
    views_of_cluster = {"with railwright": build_feed(4), "without": build_feed(6)}
    async with (
        dashboard_servers.feeding(*views_of_cluster.values()),
        application.open_port(settings.Address("127.0.0.1", 0), views_of_cluster, command._allow_everyone) as where,
    ):
        async with chrome.tab() as page:
            await page.open(f"http://{where}/#gang=train/llm")
            await page.until("document.querySelector('#details .gang') && !document.getElementById('views').hidden")
            assert await page.js("document.getElementById('source').innerText.includes('4 nodes')")
            assert (
                await page.js("document.querySelector('#views [aria-pressed=true]').dataset.choice")
                == "with railwright"
            )
            await page.until(
                "document.getElementById('views').innerText.match(/with railwright 1\\.00\\s+without 1\\.00/)"
            )
            await page.js(click("#views button:last-child"))
            await page.until("document.getElementById('source').innerText.includes('6 nodes')")
            assert await page.js("location.search + location.hash") == "?view=without#gang=train/llm"
            assert await page.js("document.querySelector('#details .gang') !== null")
            await page.js("history.back()")
            await page.until("document.getElementById('source').innerText.includes('4 nodes')")
        async with chrome.tab() as page:
            await page.open(f"http://{where}/?view=without")
            await page.until("document.querySelector('#views [aria-pressed=true]')?.dataset.choice === 'without'")
            await page.until("document.getElementById('source').innerText.includes('6 nodes')")
        async with chrome.tab() as page:
            await page.open(f"http://{where}/?view=none")
            await page.until(f"{PROBLEMS}.includes('No such view; there are: with railwright, without')")
