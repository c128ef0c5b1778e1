"""Examples on the pages work: policies are valid, manifests are admitted, commands parse."""

import contextlib
import io
import re
import shlex

import pages
import pytest
import yaml

from railwright.cli import dispatch
from railwright.cli.explanation import previews, templates
from railwright.cluster import policies
from railwright.fabric import names
from railwright.preflight import __main__ as preflight
from railwright.serving import settings

SERVERS = ("webhook", "extender")
ALL = [*pages.PAGES, *pages.AROUND]
YAML = [block for page in ALL for block in pages.blocks(page) if block.language in {"yaml", "yml"}]
STAND_IN = policies.read((pages.ROOT / "railwright" / "cli" / "demo" / "policy.yaml").read_text())


def documents(block: pages.Block) -> list[dict]:
    return [document for document in yaml.load_all(block.text, Loader=yaml.CSafeLoader) if isinstance(document, dict)]


POLICIES = [
    block for block in YAML if any({"apiVersion", "fabrics"} <= document.keys() for document in documents(block))
]
JOBS = [
    (block, tree)
    for block in YAML
    for tree in documents(block)
    if tree.get("kind") and templates.expand(tree, templates.DEFAULT_NAMESPACE)
]


@pytest.mark.parametrize("block", YAML, ids=lambda block: block.title)
def test_every_yaml_block_parses(block):
    list(yaml.load_all(block.text, Loader=yaml.CSafeLoader))


@pytest.mark.parametrize("block", POLICIES, ids=lambda block: block.title)
def test_every_policy_on_a_page_would_be_accepted(block):
    result = policies.read_manifest(block.text)
    assert not isinstance(result, policies.Rejected), result.errors


@pytest.mark.parametrize(("block", "tree"), JOBS, ids=[f"{block.title} {tree['kind']}" for block, tree in JOBS])
def test_every_manifest_on_a_page_is_admitted_by_the_pages_policy(block, tree):
    own = [policy for policy in POLICIES if policy.page == block.page]
    policy = policies.read_manifest(own[0].text) if own else STAND_IN
    for template in templates.expand(tree, templates.DEFAULT_NAMESPACE):
        given = previews.preview_admission(template, policy, previews.load_caches(None))
        assert not previews.is_rejected(given), given.message
        if names.FABRIC in yaml.safe_dump(tree):
            assert given.operations


def test_the_pages_contain_policies_and_manifests():
    assert len(POLICIES) >= 6
    assert len(JOBS) >= 13


def commands() -> list[tuple[str, str, bool]]:
    """Return every `railwright ...` of the pages: (page, text, whole). In a sentence a command may lack parts."""
    parts_of_pages = []
    for page in ALL:
        for block in pages.blocks(page):
            if block.language in {"console", "shell", "sh", "bash"}:
                for line in block.text.replace("\\\n", " ").splitlines():
                    parts = re.split(r"\s(?:&&|\||>)\s", line.removeprefix("$ "))
                    parts_of_pages += [(page.name, part, True) for part in parts]
        parts_of_pages += [(page.name, match, False) for match in re.findall(r"`([^`\n]+)`", pages.prose(page))]
    cleaned = [
        (page, re.sub(r"^kubectl railwright\b", "railwright", text.strip()), whole)
        for page, text, whole in parts_of_pages
    ]
    return sorted({(page, command, whole) for page, text, whole in cleaned for command in list_commands(text)})


def list_commands(text: str) -> list[str]:
    """Return the commands in a text: `policy validate|schema` is two. Empty if it is no railwright command."""
    if not re.match(r"railwright [a-z]", text):
        return []
    text = re.sub(r"\s?\[[^\]]*\]", "", text)  # what may be left out
    choice = re.search(r"(?<=\s)[a-z]+(?:\|[a-z]+)+(?=\s|$)", text)
    if not choice:
        return [text]
    return [text[: choice.start()] + part + text[choice.end() :] for part in choice[0].split("|")]


def complaint(text: str) -> str:
    """Return the error of the real parsers for a command line; "" if they accept it."""
    words = shlex.split(text, comments=True)[1:]
    if "..." in words:
        return ""
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
        try:
            _parse(words)
        except SystemExit as leaving:
            return errors.getvalue() or str(leaving) if leaving.code else ""
    return ""


def _parse(words: list[str]) -> None:
    if words[0] in SERVERS:
        settings._build_parser(words[0]).parse_args(words[1:])
    elif words[0] == "preflight":
        parser = preflight._build_parser()
        for action in parser._actions:
            action.required = False  # a page may speak of one option
        parser.parse_args(words[1:])
    elif words[1:]:
        dispatch.build_parser(words[:1]).parse(words)
    elif words[0] not in dispatch.COMMANDS:
        raise SystemExit(f"no command {words[0]}")


@pytest.mark.parametrize(("page", "text", "whole"), commands(), ids=lambda part: str(part)[-60:])
def test_the_program_accepts_every_command_on_a_page(page, text, whole):
    why = complaint(text)
    unfinished = "arguments are required" in why or "expected one argument" in why
    assert not why or (unfinished and not whole), f"{page}: {text}: {why}"


@pytest.mark.parametrize("text", ["railwright nothing", "railwright lint --nothing x", "railwright policy check x"])
def test_an_unknown_command_is_an_error(text):
    assert complaint(text)
