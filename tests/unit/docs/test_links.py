"""Every relative link of a page has a target in the repository, and no text names a site that does not exist."""

import pathlib
import re
import subprocess

import pages
import pytest

from documentation import site

SITE = "https://railwright.io/docs"
TEXTS = {".py", ".yaml", ".yml", ".md", ".json", ".html", ".js", ".tpl", ".txt", ".svg"}


def find_problem(page: pathlib.Path, target: str) -> str:
    """Return what is wrong with a link; "" if its target exists."""
    if re.match(r"[a-z]+:", target):
        return ""
    path, _, anchor = target.partition("#")
    target_file = (page.parent / path).resolve() if path else page
    if not target_file.exists():
        return f"{target}: there is no {path}"
    if anchor and target_file.suffix == ".md" and anchor not in pages.anchors(target_file):
        anchors = ", ".join(sorted(pages.anchors(target_file)))
        return f"{target}: {target_file.name} has no heading for #{anchor}; it has {anchors}"
    return ""


@pytest.mark.parametrize("page", [*pages.PAGES, *pages.AROUND], ids=lambda page: str(page.relative_to(pages.ROOT)))
def test_every_relative_link_and_anchor_of_a_page_resolves(page):
    assert [problem for target in pages.links(page) if (problem := find_problem(page, target))] == []


def test_links_to_missing_pages_and_headings_are_reported():
    page = pages.DOCS / "index.md"
    assert find_problem(page, "nowhere.md")
    assert find_problem(page, "reference/policy.md#nowhere")
    assert not find_problem(page, "reference/policy.md#nccl")


def test_code_and_manifests_have_no_address_of_the_site():
    """The domain is not the project's. Explanations are in the commands, and pages are linked by their files."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=pages.ROOT, capture_output=True, check=True)
    names = [name for name in filter(None, listed.stdout.decode().split("\0")) if not name.startswith("tests/")]
    paths = [pages.ROOT / name for name in names if pathlib.Path(name).suffix in TEXTS and (pages.ROOT / name).exists()]
    assert [str(path) for path in paths if SITE in path.read_text()] == []


class Page:
    def __init__(self, path):
        self.file = type("File", (), {"src_uri": path})()


@pytest.mark.parametrize(
    ("page", "link", "plain", "expected"),
    [
        ("a.md", "[x](../tests/y.py)", "x", "[x](https://h/blob/main/tests/y.py)"),
        ("sites/a.md", "[x](../policy.md#nccl)", "[x](../policy.md#nccl)", "[x](../policy.md#nccl)"),
        ("sites/a.md", "[`x`](../../manifests/y)", "`x`", "[`x`](https://h/blob/main/manifests/y)"),
    ],
)
def test_on_the_site_a_link_out_of_the_documentation_leads_to_the_repository_or_is_plain_text(
    page, link, plain, expected
):
    assert site.on_page_markdown(link, Page(page), {}, None) == plain
    assert site.on_page_markdown(link, Page(page), {"repo_url": "https://h/"}, None) == expected


@pytest.mark.parametrize(
    "html",
    [
        '<script src="https://cdn/x.js">',
        '<link href="a" rel="stylesheet" href="https://f/x.css">',
        "<img src=http://h/i>",
    ],
)
def test_a_page_that_loads_from_another_server_is_an_error(html):
    with pytest.raises(site.ElsewhereError, match=r"a\.md"):
        site.on_post_page(html, Page("a.md"), {})
    assert site.on_post_page('<a href="https://h">x</a><link rel=canonical href=https://h>', Page("a.md"), {})
