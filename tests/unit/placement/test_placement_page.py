"""docs/placement.md has the computed table and picture, and its text agrees with them."""

import placement_page


def test_the_table_and_the_picture_of_the_page_are_up_to_date():
    stale = [path.name for path, text in placement_page.list_files().items() if path.read_text() != text]
    assert stale == [], "run: PYTHONPATH=.:tests/support python tests/support/placement_page.py"


def test_the_pictured_placements_match_the_text_of_the_page():
    by = {placed_gang.title: placed_gang for placed_gang in placement_page.place_gang()}
    railwright, optimum = by["railwright"], placement_page.find_optimum(placement_page.DRAWN)
    assert railwright.bandwidth == optimum, "the page says that no placement is better"
    assert railwright.bandwidth < 1, "the page says that full bandwidth cannot be reached"
    assert (by["no extender"].leaves, railwright.leaves) == (5, 2), "as the picture's description says"
    assert set(railwright.hosts).isdisjoint(railwright.busy)
    assert len(set(railwright.hosts)) == placement_page.GANG.pods
    for draw in placement_page.DRAWS:
        (placed,) = [gang for gang in placement_page.place_gang(draw) if gang.title == "railwright"]
        assert placed.bandwidth == placement_page.find_optimum(draw), "it is also the best with other busy nodes"
