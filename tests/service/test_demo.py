"""`railwright demo`: the whole path as a user runs it."""

import asyncio
import json
import re
import signal
import sys
import xml.etree.ElementTree as ET

import aiohttp
import pytest


def contrast(one: str, other: str) -> float:
    """The ratio of WCAG 2.2, 1 to 21."""

    def luminance(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        red, green, blue = [each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in parts]
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


async def demo(*arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "railwright.cli",
        "demo",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def test_the_gang_takes_the_fewest_leaves_and_every_pod_is_injected_and_says_where_it_landed(tmp_path):
    picture = tmp_path / "demo.svg"
    process = await demo("-o", "json", "--svg", str(picture))
    out, err = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0, err.decode()
    result = json.loads(out)
    assert result["fine"]
    assert len({each["leaf"] for each in result["placed"]}) == result["min_leaves"] == 1
    assert len({each["leaf"] for each in result["without"]}) > 1, "there is nothing to see where Volcano does as well"
    for pod, annotation, placed in zip(result["admitted"], result["annotations"], result["placed"], strict=True):
        assert "railwright.io/injection" in pod["after"]["metadata"]["annotations"]
        assert annotation["node"] == placed["node"]
        assert annotation["rails"] == ["rail0", "rail1", "rail2", "rail3"]


async def test_the_picture_is_complete_and_needs_no_network(tmp_path):
    picture = tmp_path / "demo.svg"
    process = await demo("--svg", str(picture))
    out, err = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0, err.decode()
    assert "leaves used (least possible: 1)" in out.decode()
    added = [line for line in out.decode().splitlines() if line.startswith("│ +")]
    record = added.index(next(line for line in added if "railwright.io/injection" in line))
    after_it = next(at for at in range(record + 1, len(added)) if not added[at].startswith("│ +       "))
    told = re.search(r"by hand +1 line +(\d+) lines", out.decode())
    assert int(told.group(1)) == record + len(added) - after_it, "the record is nothing that people write"
    svg = picture.read_text()
    text = "".join(ET.fromstring(svg).itertext())  # noqa: S314 - our own file
    assert "least" in text
    assert not re.search(r"url\(.?https?:", svg)


async def test_serve_keeps_both_servers_and_a_page_until_it_is_told_to_stop():
    process = await demo("--serve")
    lines = []
    async with asyncio.timeout(60):
        while not lines or "Ctrl-C" not in lines[-1]:
            line = await process.stdout.readline()
            assert line, (await process.stderr.read()).decode()
            lines.append(line.decode())
    page = re.search(r"http://\S+/", lines[-1]).group()
    ops = [re.search(r"ops (http://\S+)", line).group(1) for line in lines if " ops http" in line]
    async with aiohttp.ClientSession() as session:
        async with session.get(page) as answer:
            text = await answer.text()
            assert "llm-worker-6" in text
            assert '<meta name="viewport"' in text
            ground = re.search(r"background: (#\w{6})", text).group(1)
            inks = set(re.findall(r"(?<!-)color: (#\w{6})", text))
            assert len(inks) > 4, "it is coloured"
            assert {each for each in inks if contrast(each, ground) < 4.5} == set(), "every colour can be read"
        for each in ops:
            async with session.get(f"{each}/readyz") as answer:
                assert answer.status == 200
        process.send_signal(signal.SIGTERM)
        await asyncio.wait_for(process.communicate(), 30)
        assert process.returncode == 0
        for each in ops:
            with pytest.raises(aiohttp.ClientConnectorError):
                await session.get(f"{each}/readyz")
    assert len(ops) == 2
