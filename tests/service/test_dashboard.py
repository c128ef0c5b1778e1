"""The dashboard's port: access and answers."""

import asyncio
import base64

import aiohttp
import api_stub
import dashboard_servers
import placing
import pytest
import pytest_asyncio
import reserved_ports
import varied_clusters
from dashboard_servers import find

from railwright.cli import __main__ as command_line
from railwright.dashboard import application
from railwright.fabric.overview import overview_builder
from railwright.fabric.placement.state import cluster_state
from railwright.serving import ports, settings

HERE = settings.Address("127.0.0.1", 0)


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def shown(tmp_path_factory):
    """Start the dashboard command on 32 nodes; yield (URL, API server, cluster)."""
    vista = varied_clusters.Vista(2, 2, 8, gangs=2, waiting=1)
    async with dashboard_servers.shown(tmp_path_factory.mktemp("vista"), vista) as (url, server):
        yield url, server, vista


@pytest_asyncio.fixture(loop_scope="session")
async def session():
    async with aiohttp.ClientSession() as session:
        yield session


async def test_the_overview_shows_changes_of_the_cluster(shown, session):
    url, server, vista = shown
    await dashboard_servers.read_until(
        session, url, lambda seen: find(seen, "fabrics", "roce").get("nodes") == 32 and len(seen["gangs"]) == 3
    )
    vista.add_gang(2, name="late", namespace="prod")
    server.release()
    seen = await dashboard_servers.read_until(session, url, lambda seen: find(seen, "gangs", "prod/late"))
    assert find(seen, "gangs", "prod/late")["placed"] == 2
    assert len(seen["gangs"]) == 4
    assert sum(len(leaf["nodes"]) for leaf in seen["leaves"].values()) == 32


async def test_an_unchanged_overview_is_answered_with_304(shown, session):
    url, server, vista = shown
    await dashboard_servers.read_until(session, url, lambda seen: find(seen, "fabrics", "roce").get("nodes"))
    async with session.get(f"{url}api/overview") as response:
        before, headers = await response.json(), {"If-None-Match": response.headers["ETag"]}
        assert response.headers["Cache-Control"] == "no-store"
    async with session.get(f"{url}api/overview", headers=headers) as response:
        assert (response.status, await response.read()) == (304, b"")
    vista.add_gang(2, name="missed", namespace="prod")
    server.release()
    await dashboard_servers.read_until(session, url, lambda seen: find(seen, "gangs", "prod/missed"))
    for known in (headers, {"If-None-Match": '"another"'}):
        async with session.get(f"{url}api/overview", headers=known) as response:
            assert len((await response.json())["gangs"]) == len(before["gangs"]) + 1


async def test_the_dashboard_explains_why_a_gang_does_not_use_a_node(shown, session):
    url, _, vista = shown
    key = f"{vista.groups[0]['metadata']['namespace']}/{vista.groups[0]['metadata']['name']}"
    query = {"gang": key, "node": vista.names[0]}
    await dashboard_servers.read_until(session, url, lambda seen: find(seen, "gangs", key))
    async with session.get(f"{url}api/why", params=query) as response:
        explanation = await response.json()
        assert explanation["node"] == vista.names[0]
        assert explanation.get("rejection") or explanation["terms"]
    async with session.get(f"{url}api/why", params={"gang": "no/such", "node": "none"}) as response:
        assert response.status == 404
        assert "no such gang" in (await response.json())["error"]["reason"]


@pytest.mark.parametrize("path", ["", "page/app.js", "page/style.css", "nowhere", "api/why"])
async def test_every_answer_has_the_security_headers(shown, session, path):
    async with session.get(shown[0] + path) as response:
        policy = response.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        assert "Python" not in response.headers["Server"]


async def test_a_browser_gets_all_files_of_the_page_over_one_connection(shown):
    host, number = shown[0].removeprefix("http://").rstrip("/").split(":")
    reader, writer = await asyncio.open_connection(host, int(number))
    for path, media_type in (("/", "html"), ("/page/app.js", "javascript"), ("/page/style.css", "css"), ("/", "html")):
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        assert "HTTP/1.1 200 OK" in head
        assert f"Content-Type: text/{media_type}; charset=utf-8" in head
        await reader.readexactly(int(head.partition("Content-Length: ")[2].split()[0]))
    writer.close()


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "10.0.0.1", ""])
async def test_the_dashboard_refuses_a_host_header_that_does_not_name_the_loopback_interface(shown, session, host):
    for path in ("", "api/overview", "page/app.js"):
        async with session.get(shown[0] + path, headers={"Host": host}) as response:
            assert response.status == 421


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
async def test_the_dashboard_refuses_methods_other_than_get_and_head(shown, session, method):
    async with session.request(method, f"{shown[0]}api/why", data=b"x" * 100_000) as response:
        assert response.status == 405
        assert response.headers["Allow"] == "GET, HEAD"


@pytest.mark.parametrize(
    "path", ["page/../../pyproject.toml", "page/%2e%2e/assets.py", "page/..%2fapplication.py", "page/", "/etc/passwd"]
)
async def test_the_dashboard_serves_no_file_outside_of_its_page(shown, path):
    host, number = shown[0].removeprefix("http://").rstrip("/").split(":")
    reader, writer = await asyncio.open_connection(host, int(number))
    writer.write(f"GET /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
    assert b" 404 " in await reader.readline()
    writer.close()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--listen", "0.0.0.0:0"), "listen on 127.0.0.1"),
        (("--listen", "nonsense"), "is not HOST:PORT"),
        (("--snapshot", "x"), "add --policy FILE"),
        (("--snapshot", "/nonexistent", "--policy", "/nonexistent"), "/nonexistent: No such file"),
    ],
)
async def test_the_dashboard_refuses_unusable_options_with_the_fix(arguments, message, capsys):
    assert await asyncio.to_thread(command_line.main, ["dashboard", *arguments]) == 2
    assert message in capsys.readouterr().err


# --- the extender's port ------------------------------------------------------------------------------------------


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def guarded(tmp_path_factory):
    """Start an extender with a dashboard; yield (URL, its API server)."""
    folder = tmp_path_factory.mktemp("guarded")
    server = dashboard_servers.write_small(folder)
    async with server.open(folder) as kubeconfig, dashboard_servers.extender(kubeconfig, folder) as address:
        yield f"http://{address}/", server


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


async def test_the_page_is_served_without_a_token_and_its_data_only_with_one(guarded, session):
    url, _ = guarded
    async with session.get(url) as response:
        assert response.status == 200
    for path in ("api/overview", "api/why?gang=a&node=b"):
        async with session.get(url + path) as response:
            assert response.status == 401
            assert response.headers["WWW-Authenticate"] == "Bearer"


async def test_only_users_who_may_get_the_path_read_the_dashboard(guarded, session):
    url, server = guarded
    for headers, status in ((bearer("ann-token"), 200), (bearer("bob-token"), 403), (bearer("no-token"), 401)):
        async with session.get(f"{url}api/overview", headers=headers) as response:
            assert response.status == status
    assert server.reviews[0]["nonResourceAttributes"] == {"path": "/dashboard", "verb": "get"}
    basic = {"Authorization": "Basic " + base64.b64encode(b"ann:ann-token").decode()}
    async with session.get(f"{url}api/overview?token=ann-token", headers=basic) as response:
        assert response.status == 401  # neither in another scheme nor in the address


async def test_the_dashboard_names_the_lists_that_its_user_may_not_read(tmp_path, session):
    server = dashboard_servers.write_small(tmp_path)
    server.fault = lambda request: 403 if request.path.endswith("/nodes") else None
    async with server.open(tmp_path) as kubeconfig, dashboard_servers.over(kubeconfig, tmp_path) as url:
        seen = await dashboard_servers.read_until(
            session, url, lambda seen: seen["fabrics"] and "you may not" in "".join(seen["problems"])
        )
    (problem,) = seen["problems"]
    assert "you may not list nodes -A (403 Forbidden: no); ask an administrator" in problem
    assert find(seen, "fabrics", "roce")["nodes"] == 0


async def test_the_dashboard_names_an_unreachable_cluster_in_the_terminal(tmp_path):
    with reserved_ports.reserve() as port:
        command = ("dashboard", "--kubeconfig", api_stub.kubeconfig(tmp_path, port))
        async with dashboard_servers.started("railwright: ", *command, out="stderr") as first_word:
            assert first_word == "cannot"  # cannot reach http://127.0.0.1:PORT: connection refused; check ...


# --- readers ------------------------------------------------------------------------------------------------------


class CountedBuilder(overview_builder.OverviewBuilder):
    """A builder that counts its refreshes."""

    refreshes = 0

    def refresh(self, limit: int = 16):
        self.refreshes += 1
        return super().refresh(limit)


async def everybody(_authorization: str, _peer: str) -> None:
    return None


async def test_readers_share_a_refresh_which_continues_when_one_disconnects(session):
    state = placing.build_cluster(placing.build_leaves(a=2000))
    builder = CountedBuilder(state, placing.build_policy, {})
    feed = application.Feed(builder, source="x")
    reading = asyncio.create_task(feed.read_overview())
    await asyncio.sleep(0)
    reading.cancel()
    async with ports.open_port(
        ports.Port("", HERE, application.build_application(feed, everybody, loopback=True))
    ) as where:
        seen = await asyncio.gather(*(session.get(f"http://{where}/api/overview") for _ in range(8)))
        for response in seen:
            assert find(await response.json(), "fabrics", "roce")["nodes"] == 2000
    assert builder.refreshes == 1


async def test_the_dashboard_checks_the_permission_of_its_reader_at_each_request(session):
    feed, asked = application.Feed(CountedBuilder(cluster_state.ClusterState(), lambda: None, {}), source="x"), []

    async def guard(authorization: str, _peer: str) -> tuple[int, str] | None:
        asked.append(authorization)
        return None if len(asked) == 1 else (403, "no more")

    async with ports.open_port(
        ports.Port("", HERE, application.build_application(feed, guard, loopback=True))
    ) as where:
        for status in (200, 403):
            async with session.get(f"http://{where}/api/overview", headers=bearer("t")) as response:
                assert response.status == status
    assert asked == ["Bearer t", "Bearer t"]
