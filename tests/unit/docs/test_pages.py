"""Pages: the menu, tables and pictures of all, and what single pages say of the program and its manifests."""

import pathlib
import re
import subprocess

import pages
import pytest
import yaml

from documentation import reference, site
from extender import gang_events
from railwright.cli.checking import command as checking
from webhook import object_events

CONFIG = pages.SITE


def list_leaves(tree) -> list[str]:
    if isinstance(tree, str):
        return [tree]
    return [leaf for part in (tree.values() if isinstance(tree, dict) else tree) for leaf in list_leaves(part)]


def test_every_page_is_in_the_menu_once_and_the_menu_names_no_other():
    there = {str(page.relative_to(pages.DOCS)) for page in pages.PAGES}
    named = list_leaves(CONFIG["nav"])
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


# --- counts and figures ---------------------------------------------------------------------------------------


def test_the_number_of_rows_is_that_of_the_command():
    page = (pages.DOCS / "evidence" / "status.md").read_text()
    (count,) = re.findall(r"`railwright check` \| works: (\d+) rows", page)
    assert int(count) == len(checking.ROWS)


# --- memory ---------------------------------------------------------------------------------------------------


MEMORY = re.compile(
    r"^\| (?P<server>webhook|extender) \| (?P<where>[^|]+) \| (?P<request>\d+[MG]i) \| (?P<limit>\d+[MG]i) \|",
    re.MULTILINE,
)


def list_memory() -> list[re.Match[str]]:
    return list(MEMORY.finditer((pages.ROOT / "docs" / "evidence" / "performance.md").read_text()))


def test_the_page_recommends_memory_for_both_servers_and_each_size():
    said = {(row["server"], row["where"].strip("* ")) for row in list_memory()}
    sizes = {where for _, where in said}
    assert len(sizes) == 3
    assert said == {(server, where) for server in ("webhook", "extender") for where in sizes}


@pytest.mark.parametrize("server", ["webhook", "extender"])
def test_manifests_ship_the_request_of_a_small_cluster_and_the_limit_of_the_largest(server):
    documents = yaml.safe_load_all((pages.ROOT / "manifests" / "base" / f"{server}.yaml").read_text())
    (deployment,) = [document for document in documents if document["kind"] == "Deployment"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    first, *_, last = [row for row in list_memory() if row["server"] == server]
    shipped = container["resources"]
    assert (shipped["requests"]["memory"], shipped["limits"]["memory"]) == (first["request"], last["limit"])
    assert "cpu" not in shipped["limits"]  # a throttled server is late, and late is what callers time out on


# --- Events ---------------------------------------------------------------------------------------------------


def list_reasons(module) -> set[str]:
    return {value for name, value in vars(module).items() if name.isupper() and isinstance(value, str)} - {""}


def test_every_reason_of_an_event_is_on_the_page():
    posted = {
        reason
        for module in (object_events, gang_events)
        for reason in list_reasons(module)
        if reason[0].isupper() and reason.isalpha()
    }
    assert len(posted) == 11
    assert {row.reason for row in reference.EVENTS} == posted
    page = (pages.DOCS / "reference" / "events.md").read_text()
    assert all(f"`{reason}`" in page for reason in posted)
    posting = [path for name in ("webhook", "extender") for path in (pages.ROOT / name).glob("*_events.py")]
    assert len(posting) == 2
    assert not [path for path in posting if 'reason="' in path.read_text()], "a reason without a name"


# --- commands that change an installation ---------------------------------------------------------------------


INSTALLING = sorted((*pages.ROOT.glob("docs/**/*.md"), pages.ROOT / "README.md", *pages.ROOT.glob("manifests/**/*.md")))
UPGRADE = re.compile(r"helm upgrade \S+ \S(?:.*\\\n)*.*")


each_page = pytest.mark.parametrize("page", INSTALLING, ids=lambda page: str(page.relative_to(pages.ROOT)))


@each_page
def test_an_upgrade_keeps_the_values(page):
    for command in UPGRADE.findall(page.read_text().replace("upgrade --install", "upgrade")):
        assert "--reset-then-reuse-values" in command or "--values" in command, command


@each_page
def test_no_page_applies_the_plain_manifests(page):
    """They name the image railwright:latest, which would replace the image of an installation."""
    assert "kubectl apply -k manifests/base" not in page.read_text()


@each_page
def test_no_page_deletes_the_webhooks_before_the_bindings(page):
    """The bindings alone reject every labelled pod."""
    text = page.read_text()
    webhooks, bindings = (
        [match.start() for match in re.finditer(rf"kubectl delete {kind}", text)]
        for kind in ("mutatingwebhookconfiguration", "validatingadmissionpolicybinding")
    )
    assert not webhooks or (bindings and min(bindings) < min(webhooks))
    assert "delete the webhook configuration" not in text


# --- README ---------------------------------------------------------------------------------------------------


README = pages.ROOT / "README.md"
SCREEN, CONTRIBUTING = README.read_text().split("\n## Contributing\n")


def run_commands(text: str) -> list[str]:
    blocks = re.findall(r"^```console\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [line.split("  #")[0].strip() for block in blocks for line in block.splitlines()]


def test_the_first_part_is_one_screen_in_the_order_of_a_strangers_questions():
    assert re.findall(r"^## (.+)", SCREEN, re.MULTILINE) == ["Try it", "Install", "Learn more"]
    assert len(SCREEN.splitlines()) <= 60
    assert len(pages.prose(README).split("\n## Contributing\n")[0].split()) <= 450, "words"


def test_the_readme_begins_with_a_sentence_a_picture_and_a_bullet_for_each_reader():
    opening = SCREEN.split("\n## ")[0]
    title, pitch, picture, *_ = opening.split("\n\n")
    assert title.startswith("# ")
    assert re.match(r"\*\*[^.*]+\.\*\*", pitch), "one sentence in bold"
    assert picture.startswith("![")
    readers = re.findall(r"^- \*\*(.+?)\*\*", opening, re.MULTILINE)
    assert readers == ["You train models", "You run the cluster", "You contribute"]


def test_the_picture_is_generated_and_says_what_is_modelled():
    (picture,) = re.findall(r"!\[[^\]]+\]\((.+?)\)", SCREEN)
    assert picture == "docs/placement-compared.svg"
    assert "modelled" in SCREEN.split(picture)[1].splitlines()[2]


def test_the_demo_comes_before_the_installation_and_the_tests_after_the_screen():
    assert run_commands(SCREEN)[0] == "make demo"
    assert run_commands(CONTRIBUTING) == ["make test"]
    assert "\nmake test\n" in (pages.ROOT / ".ci/run").read_text(), "the checks run the command of the README"


def test_the_status_says_what_has_not_been_tested_and_where_to_read_more():
    (status,) = re.findall(r"^\*\*Status\*\*: (.+)", SCREEN, re.MULTILINE)
    assert "No deployment has carried RDMA traffic in our tests yet" in status
    assert {"docs/evidence/real-nodes.md", "docs/evidence/status.md"} <= set(re.findall(r"\]\((.+?)\)", status))


def test_licence_and_security_policy_are_linked():
    assert {"LICENSE", "SECURITY.md"} <= set(re.findall(r"\]\((.+?)\)", SCREEN))


# --- threats of the security page -----------------------------------------------------------------------------


SECURITY = pages.DOCS / "security.md"
THREATS, _, THREAT_TESTS = SECURITY.read_text().partition("<details markdown>")
THREAT_ROWS = dict(re.findall(r"^\| T(\d+) \| (.*) \|$", THREAT_TESTS.partition("</details>")[0], re.MULTILINE))
CITED = re.compile(r"\[(test_\w+)\]\(([\w./-]+\.py)\)")


def test_each_threat_has_its_row_in_order():
    assert [int(number) for number in THREAT_ROWS] == list(range(1, 24))
    threats = re.findall(r"^\| T(\d+) \| [^|]+ \| [^|]+ \|$", THREATS, re.MULTILINE)
    assert [int(number) for number in threats] == list(range(1, 24))


@pytest.mark.parametrize("number", THREAT_ROWS)
def test_every_test_that_the_page_names_exists(number):
    cited = CITED.findall(THREAT_ROWS[number])
    assert cited, f"T{number} names no test"
    for name, path in cited:
        text = (SECURITY.parent / path).read_text()
        assert re.search(rf"^(async )?def {name}\(", text, re.MULTILINE), f"T{number}: {path} has no {name}"


# --- links and addresses --------------------------------------------------------------------------------------


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
