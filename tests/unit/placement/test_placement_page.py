"""docs/placement.md has the simulator's results: its tables, its picture, and the numbers in the text."""

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
