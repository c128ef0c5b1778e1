"""The README: one screen for those who meet the project, and below it the part for contributors."""

import re

import pages

README = pages.ROOT / "README.md"
SCREEN, CONTRIBUTING = README.read_text().split("\n## Contributing\n")


def sections(text: str) -> list[str]:
    return re.findall(r"^## (.+)", text, re.MULTILINE)


def run_commands(text: str) -> list[str]:
    blocks = re.findall(r"^```console\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [line.split("  #")[0].strip() for block in blocks for line in block.splitlines()]


def test_the_first_part_is_one_screen_in_the_order_of_a_strangers_questions():
    assert sections(SCREEN) == ["Try it", "Install", "Learn more"]
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
    assert "exec make test" in (pages.ROOT / ".ci/run").read_text(), "the checks run the command of the README"


def test_the_status_says_what_has_not_been_tested_and_where_to_read_more():
    (status,) = re.findall(r"^\*\*Status\*\*: (.+)", SCREEN, re.MULTILINE)
    assert "No deployment has carried RDMA traffic in our tests yet" in status
    assert {"docs/evidence/real-nodes.md", "docs/evidence/status.md"} <= set(re.findall(r"\]\((.+?)\)", status))


def test_licence_and_security_policy_are_linked():
    assert {"LICENSE", "SECURITY.md"} <= set(re.findall(r"\]\((.+?)\)", SCREEN))
