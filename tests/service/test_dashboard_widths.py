"""The dashboard's page at the widths of a phone and a laptop: geometry, contrast, order of the focus."""

import pathlib

import dashboard_servers
import pytest
import pytest_asyncio

AXE = pathlib.Path(__file__).resolve().parents[1] / "data" / "axe" / "axe.min.js"
READY = (
    "railwright.store.gangs.length >= 10 && document.getElementById('connection').dataset.state === 'live'"
    "&& document.querySelector('#gangs .state.worse') && document.querySelector('#admissions tr')"
)
SCREENS = {"phone": (390, 844), "tablet": (900, 1100), "laptop": (1440, 900)}
SELECTIONS = {  # one after the other: links to rails are shown while nothing is chosen
    "nothing": "null",
    "a rail": "document.querySelector('#details .links .link').click()",
    "a gang": "document.querySelector('#gangs li .state.worse').closest('li').click()",
    "a waiting gang": "document.querySelector('#gangs li .state.waiting').closest('li').click()",
    "a node": "railwright.drawing.on.choose(railwright.store.getGang('prod/llama-405b').ranks[0].node)",
    "Events": "document.querySelector('[data-log=events]').click()",
    "a table": "document.querySelector('[data-form=table]').click()",
}
LONG_NAME = "mixtral-8x22b-supervised-fine-tuning-2026-11-20-evaluation-sweep"
FRAMES = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
FONTS = {"S": 0, "M": 11, "L": 13}
screens = pytest.mark.parametrize("screen", SCREENS)


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def url(tmp_path_factory):
    folder = tmp_path_factory.mktemp("widths")
    vista = dashboard_servers.build_vista()
    vista.add_gang(4, name=LONG_NAME, namespace="prod-large-language-models")
    for index in range(3):
        vista.add_event(f"bert-{index}", 'no such fabric "rocee" in the policy; known are roce')
    vista.write(folder)
    async with dashboard_servers.command(folder) as address:
        yield address


async def open_page(page, url):
    await page.open(url)
    await page.until(READY)
    await page.js(FRAMES)


async def select(page, selection):
    await page.js(SELECTIONS[selection])
    if selection == "a node":
        await page.until("document.querySelector('#details .reason h4')")
    if selection == "a table":  # rows are alike
        await page.until("document.querySelector('#table tbody tr')")
        await page.js("[...document.querySelectorAll('#table tbody tr')].slice(20).forEach((row) => row.remove())")
    await page.js(FRAMES)


# Elements that stick out of the page or out of their panel, those of which a scroller hides the rest excepted.
OVERFLOWING = """(() => {
  const hidden = (it) => it.closest('.hidden, [hidden], .skip, .hint') || !it.getClientRects().length;
  const clip = (it) => { for (let up = it; up; up = up.parentElement) {
    if (getComputedStyle(up).overflowX !== 'visible') return up; } };
  return [...document.querySelectorAll('body *')].filter((it) => !hidden(it)).filter((it) => {
    const box = it.getBoundingClientRect();
    if (!box.width || clip(it.parentElement)?.matches('.rows, .table')) return false;
    return box.right > innerWidth + 0.5 || box.left < -0.5;
  }).map((it) => it.outerHTML.slice(0, 120));
})()"""

# Panels that scroll sideways.
CUT_OFF = """[...document.querySelectorAll('#details, .log .rows')].filter((it) => it.scrollWidth > it.clientWidth)
  .map((it) => it.className)"""

# Texts that are broken into lines of a few characters.
NARROW = """(() => {
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const narrow = [];
  for (let text = texts.nextNode(); text; text = texts.nextNode()) {
    const words = text.data.trim();
    if (words.length < 8) continue;
    if (text.parentElement.closest('.hidden, script, noscript, option, [hidden], .log thead')) continue;
    const range = document.createRange();
    range.selectNodeContents(text);
    const lines = new Set([...range.getClientRects()].map((box) => Math.round(box.top))).size;
    if (lines && words.length / lines < 6) narrow.push([words, lines]);
  }
  return narrow;
})()"""


@screens
async def test_no_element_overflows_and_no_text_is_squeezed(chrome, url, screen):
    async with chrome.tab(*SCREENS[screen]) as page:
        await page.open(url)
        await page.until(READY)
        for selection in SELECTIONS:
            await select(page, selection)
            assert await page.js("document.documentElement.scrollWidth") <= SCREENS[screen][0], selection
            assert await page.js(CUT_OFF) == [], selection
            assert await page.js(OVERFLOWING) == [], selection
            assert await page.js(NARROW) == [], selection


@pytest.mark.parametrize(("screen", "scheme"), [("laptop", "light"), ("laptop", "dark"), ("phone", "dark")])
async def test_axe_reports_no_violation(chrome, url, screen, scheme):
    """axe-core's rules for WCAG 2.2 A and AA and its best practices, contrast and target size among them."""
    async with chrome.tab(*SCREENS[screen]) as page:
        await page.send("Page.setBypassCSP", enabled=True)  # for axe itself: it makes a style sheet
        await page.prefer(prefers_color_scheme=scheme)
        await page.open(url)
        await page.until(READY)
        assert await page.js("document.documentElement.dataset.theme") == scheme
        await page.js(AXE.read_text())
        for selection in SELECTIONS:
            await select(page, selection)
            violations = await page.js(
                "axe.run({ rules: { 'target-size': { enabled: true } } }).then((report) =>"
                "report.violations.map(({ id, nodes: [it] }) => [id, it.html, it.failureSummary]))"
            )
            assert not violations, (selection, violations[-1])


@screens
async def test_the_focus_follows_the_order_of_the_panels(chrome, url, screen):
    async with chrome.tab(*SCREENS[screen]) as page:
        await open_page(page, url)
        panels = []
        for _ in range(80):
            await page.press("Tab")
            panel = await page.js(
                "(document.activeElement.closest('section, header') ?? document.activeElement).className.split(' ')[0]"
            )
            if not panels or panels[-1] != panel:
                panels.append(panel)
            if panel == "log" or panels.count("") > 1:
                break
        assert panels == ["skip", "top", "side", "middle", "details", "log"]
        boxes = await page.js(
            "['.top', '.side', '.middle', '.details', '.log'].map((it) =>"
            "(({ left, top }) => [left, top])(document.querySelector(it).getBoundingClientRect()))"
        )
        panels_in_order = sorted(boxes[1:], key=lambda box: (round(box[1]), box[0]))
        assert boxes[1:] == panels_in_order


@screens
async def test_names_are_whole_and_reasons_are_words(chrome, url, screen):
    async with chrome.tab(*SCREENS[screen]) as page:
        await open_page(page, url)
        names = await page.js(
            "[...document.querySelectorAll('#gangs .name')]"
            ".map((it) => [it.textContent.trim(), it.scrollWidth <= it.clientWidth])"
        )
        assert [LONG_NAME, True] in names
        assert all(whole for _, whole in names)
        heads = (
            "[...document.querySelectorAll('#admissions-table thead th')].map((it) => it.getClientRects()[0].height)"
        )
        if screen != "phone":  # a phone shows rows as cards
            assert max(await page.js(heads)) < 30
        reasons = await page.js("[...document.querySelectorAll('.attention .why')].map((it) => it.textContent)")
        assert reasons
        assert all(" " in reason.strip() for reason in reasons)


async def test_a_phone_shows_gangs_before_the_fabric(chrome, url):
    async with chrome.tab(*SCREENS["phone"]) as page:
        await open_page(page, url)
        tops = await page.js("['.side', '.middle'].map((it) => document.querySelector(it).getBoundingClientRect().top)")
        assert tops[0] < tops[1]
        problems = "document.getElementById('problems')"
        await page.js(f"{problems}.hidden = false, {problems}.textContent = 'no topology labels; '.repeat(40)")
        await page.js(FRAMES)
        top = await page.js("document.getElementById('canvas').getBoundingClientRect().top")
        assert top < SCREENS["phone"][1] * 0.8, "the drawing is in the first screen, below a long message"
        await page.js(f"{problems}.hidden = true")
        assert await page.js("document.querySelector('.top').getBoundingClientRect().height") < 170
        end = "document.querySelector('.log').getBoundingClientRect().bottom + scrollY"
        assert await page.js(f"document.documentElement.scrollHeight - ({end})") < 40, "nothing invisible is below"
        await page.js("document.querySelector('#gangs li .state.worse').closest('li').click()")
        box = "document.querySelector('.details').getBoundingClientRect()"
        await page.until(f"{box}.top >= 0 && {box}.top < 200")


async def test_a_phone_shows_admissions_as_cards(chrome, url):
    async with chrome.tab(*SCREENS["phone"]) as page:
        await open_page(page, url)
        cards = await page.js(
            "[...document.querySelectorAll('#admissions tr')].map((it) =>"
            "(({ width, height }) => [width, height])(it.getBoundingClientRect()))"
        )
        assert all(width > 340 and height < 90 for width, height in cards), cards
        pods = await page.js(
            "[...document.querySelectorAll('#admissions td:nth-child(2)')].map((it) => it.clientWidth)"
        )
        assert min(pods) > 120


@screens
async def test_the_drawing_uses_the_width(chrome, url, screen):
    async with chrome.tab(*SCREENS[screen]) as page:
        await open_page(page, url)
        width, right = await page.js(
            "(({ width, leaves }) => [width, Math.max(...leaves.map((leaf) => leaf.x + leaf.width))])"
            "(railwright.drawing.layout)"
        )
        assert width > (600 if screen == "laptop" else 340)
        assert right / width > 0.9


@screens
async def test_the_lines_of_a_ring_cross_no_label(chrome, url, screen):
    """Labels are in the bars of spines and in the cards of leaves: a line may touch a card's edge, not enter it."""
    async with chrome.tab(*SCREENS[screen]) as page:
        await open_page(page, url)
        for size, font in FONTS.items():
            await page.js(f"document.querySelector('[data-size={size}]').click()")
            await page.until(f"railwright.drawing.layout.size.font === {font}")
            await assert_rings_cross_no_label(page)


async def assert_rings_cross_no_label(page):
    rings, cards, bars, width = await page.js(
        """import('/page/layout.js').then(({ routeRing }) => {
          const { layout } = railwright.drawing;
          const order = layout.order;
          const zigzag = [0, 40, 3, 90, 17, 150, 60, 33].map((index) => order[index]);
          const rings = [...railwright.store.gangs.map((gang) => gang.ranks.map((rank) => rank.node)), zigzag];
          const cards = layout.leaves.map(({ x, y, width, height }) => [x, y, x + width, y + height]);
          const bars = layout.spines.map(({ x, y, width }) => [x, y, x + width, y + 20]);
          return [rings.map((nodes) => routeRing(layout, nodes)), cards, bars, layout.width];
        })"""
    )
    assert len(rings[-1]) > 8, "the zigzag crosses many leaves"
    for line in (line for ring in rings for line in ring):
        assert not any(enters(line, box) for box in (*cards, *bars)), (line, width)
        assert min(line[0], line[2]) >= 0
        assert max(line[0], line[2]) < width


def enters(line: list[float], box: list[float]) -> bool:
    """Return whether a horizontal or vertical line goes through the inside of a box."""
    left, right = sorted((line[0], line[2]))
    top, bottom = sorted((line[1], line[3]))
    return left < box[2] and right > box[0] and top < box[3] and bottom > box[1]
