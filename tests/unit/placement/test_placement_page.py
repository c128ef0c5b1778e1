"""docs/placement.md has what the simulator gives: its tables, its picture, and what the text says of them."""

import xml.etree.ElementTree as ET

import placement_page


def test_the_tables_and_the_picture_are_up_to_date():
    stale = [path.name for path, text in placement_page.list_files().items() if path.read_text() != text]
    assert stale == [], "run: PYTHONPATH=.:tests/support python tests/support/placement_page.py"


def test_the_pictured_placements_match_the_text_of_the_page():
    by = {placed_gang.policy: placed_gang for placed_gang in placement_page.place_gang()}
    assert by["railwright"].bandwidth == by["optimum"].bandwidth, "the page calls it the best there is"
    assert by["railwright"].bandwidth < 1, "the page says that full bandwidth is not to be had"
    assert by["none"].leaves > by["greedy"].leaves
    assert set(by["railwright"].hosts).isdisjoint(placement_page.list_busy_nodes(placement_page.DRAWN))
    assert len(set(by["railwright"].hosts)) == placement_page.GANG
    assert placement_page.mean("railwright") == placement_page.mean("optimum"), "nor does the choice flatter it"


def test_the_picture_shows_each_rank_once_and_says_both_results_in_words():
    svg = placement_page.draw_comparison()
    tree = ET.fromstring(svg)  # noqa: S314 - our own
    gangs = [gang for gang in placement_page.place_gang() if gang.policy in {"none", "railwright"}]
    assert tree.attrib["aria-label"] == "; ".join(f"{gang.title}: {gang.result}" for gang in gangs)
    halves = list(tree.iter("{http://www.w3.org/2000/svg}g"))
    for half, gang in zip(halves, gangs, strict=True):
        texts = [text.text for text in half.iter("{http://www.w3.org/2000/svg}text")]
        assert sorted(text for text in texts if text in set("01234567")) == sorted("01234567"), gang.title
        boxes = [rect.attrib for rect in half.iter("{http://www.w3.org/2000/svg}rect")]
        assert all(float(box["x"]) + float(box["width"]) <= placement_page._WIDTH for box in boxes)
    assert svg.count(placement_page._STYLES["busy"]) == 2 * placement_page.BUSY
    assert "http" not in svg.replace("http://www.w3.org/2000/svg", "")
