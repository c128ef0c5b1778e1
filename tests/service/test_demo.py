"""`railwright demo`: the card on a terminal, the gang, and the dashboard that it serves."""

import re
import subprocess
import sys

import aiohttp
import dashboard_servers
import pytest
import terminals
from dashboard_servers import find

from railwright.cli.demo import scenario

NEXT = ["railwright explain job.yaml", "railwright dashboard --open", "helm install railwright"]


def assert_card(lines):
    """Assert one screen: before and after, a map, the bandwidth of both, and the next steps."""
    assert 15 < len(lines) <= 24
    assert max(map(len, lines)) <= 80
    text = "\n".join(lines)
    assert "labels: {railwright.io/fabric: roce}" in text
    assert "devices   nvidia.com/mlx5_0..3" in text
    left, right = zip(*[line.split("│") for line in lines if "│" in line], strict=True)
    for side, leaves, network in ((left, 7, "TCP"), (right, 1, "RDMA on 4 rails")):
        drawn = "".join(side)
        cells = "".join(line for line in side if "○" in line)
        assert cells.count("●") == 8, "each node of the gang"
        assert sum(map(cells.count, "●○x")) == 64, "every node is drawn"
        assert f"{leaves} leaves, where 1 would do" in drawn or f"{leaves} leaf " in f"{drawn} "
        assert f"network: {network}" in drawn
    alone, with_us = (int(re.search(r"bandwidth █+ (\d+) %", "".join(side))[1]) for side in (left, right))
    assert alone < with_us
    assert text.count("odelled") == 1, "said once"
    assert "both placements over RDMA" in text, "the comparison is of placements only"
    assert [command in line for command, line in zip(NEXT, lines[-3:], strict=True)] == [True] * 3


def test_the_demo_places_its_gang_on_fewer_leaves_with_railwright_than_without():
    pods, placed, without, _ = scenario.admit_and_place(scenario.build_cluster())
    assert len({rank.leaf for rank in placed.ranks}) == placed.leaves == placed.min_leaves == 1
    assert without.leaves > 1, "there is nothing to see where Volcano does as well"
    assert without.bandwidth < placed.bandwidth == 1.0
    assert all("railwright.io/injection" in pod["metadata"]["annotations"] for pod in pods)


def test_the_demo_shows_a_status_line_and_then_the_card_on_a_terminal():
    code, output = terminals.capture(["demo"], 80)
    assert code == 0
    assert output.startswith("\r\x1b[Kstarting…\r\x1b[K"), "the first byte, before any library is imported"
    assert "placing a gang on simulated nodes…" in output
    card = output.rpartition("\r\x1b[K")[2]
    assert_card(re.sub(r"\x1b\[[\d;]*m", "", card).splitlines())


@pytest.mark.parametrize("command", ["check", "demo"])
def test_the_first_status_line_is_printed_before_libraries_are_imported(command):
    program = (
        "import sys; from railwright.cli import dispatch, output; "
        f"dispatch.build_parser().parse(['{command}']); "
        "output.show_status('starting'); print(sorted(sys.modules))"
    )
    modules = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert "railwright.cli.dispatch" in modules
    assert not re.search(r"'(rich|aiohttp|cryptography|msgspec|yaml|asyncio)\b", modules)


async def test_the_dashboard_of_demo_serve_has_the_placed_gang():
    async with (
        dashboard_servers.started("dashboard: ", "demo", "--serve", out="stdout") as url,
        aiohttp.ClientSession() as session,
    ):
        seen = await dashboard_servers.read_until(session, url, lambda seen: seen["gangs"])
    [gang] = seen["gangs"]
    assert (gang["name"], gang["state"], gang["placed"], gang["bandwidth"]) == ("llm", "placed", 8, 1.0)
    assert find(seen, "fabrics", "roce")["nodes"] == 64
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientConnectorError):
            await session.get(url)
