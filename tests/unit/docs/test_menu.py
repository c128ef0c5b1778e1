"""The menu of the site has every page once, and the site needs no network."""

import re

import pages
import pytest

CONFIG = pages.SITE


def leaves(tree) -> list[str]:
    if isinstance(tree, str):
        return [tree]
    return [leaf for part in (tree.values() if isinstance(tree, dict) else tree) for leaf in leaves(part)]


def test_every_page_is_in_the_menu_once_and_the_menu_names_no_other():
    there = {str(page.relative_to(pages.DOCS)) for page in pages.PAGES}
    named = leaves(CONFIG["nav"])
    assert len(named) == len(set(named))
    assert there - set(named) == set(), "pages that nobody finds"
    assert set(named) - there == set(), "entries without a page"


def test_the_site_loads_no_external_fonts_or_analytics():
    assert CONFIG["theme"]["font"] is False
    assert "analytics" not in CONFIG["extra"]
    assert not CONFIG.get("extra_javascript")
    assert [name for name in CONFIG["extra_css"] if not (pages.DOCS / name).exists()] == []
    assert "http" not in "".join((pages.DOCS / name).read_text() for name in CONFIG["extra_css"])


@pytest.mark.parametrize("page", pages.PAGES, ids=lambda page: page.stem)
def test_every_picture_says_what_it_shows_and_every_page_has_one_title(page):
    text = pages.prose(page)
    assert "![](" not in text
    assert sum(line.startswith("# ") for line in text.splitlines()) == 1


@pytest.mark.parametrize("page", [*pages.PAGES, *pages.AROUND], ids=lambda page: page.stem)
def test_every_row_of_a_table_has_the_cells_of_its_head(page):
    lines = re.sub(r"`[^`\n]*`", "", pages.prose(page)).splitlines()
    wrong, cells = [], None
    for line in lines:
        if not line.startswith("|"):
            cells = None
            continue
        count = len(re.findall(r"(?<!\\)\|", line))
        cells = cells or count
        wrong += [line[:80]] * (count != cells)
    assert wrong == []
