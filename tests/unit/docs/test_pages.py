"""Pages are correct: links resolve, and policies, manifests and commands are accepted."""

import contextlib
import io
import pathlib
import re
import shlex
from collections.abc import Iterator

import pages
import pytest
import shapes
import yaml

from documentation import reference
from extender import gang_tracker
from railwright.cli import dispatch
from railwright.cli.explanation import previews, templates
from railwright.cluster import installed_names, policies
from railwright.fabric import names
from railwright.preflight import __main__ as preflight
from railwright.serving import settings
from webhook import object_events

SERVERS = ("webhook", "extender")
STAND_IN = policies.read((pages.ROOT / "railwright" / "cli" / "demo" / "policy.yaml").read_text())
UPGRADE = re.compile(r"helm upgrade \S+ \S(?:.*\\\n)*.*")
ALL = [*pages.PAGES, *pages.AROUND, *sorted((pages.ROOT / "manifests").rglob("*.md"))]


@pytest.mark.parametrize("page", ALL, ids=lambda page: str(page.relative_to(pages.ROOT)))
def test_the_links_policies_manifests_and_commands_of_a_page_are_valid(page):
    assert [
        *list_broken_links(page),
        *list_dead_paths(page),
        *list_rejected(page),
        *list_misused(page),
        *list_unsafe(page),
    ] == []


# --- links ----------------------------------------------------------------------------------------------------


def list_broken_links(page: pathlib.Path) -> Iterator[str]:
    for target in pages.links(page):
        path, _, anchor = target.partition("#")
        target_file = (page.parent / path).resolve() if path else page
        if re.match(r"[a-z]+:", target):
            continue
        if not target_file.exists():
            yield f"{target}: there is no {path}"
        elif anchor and target_file.suffix == ".md" and anchor not in pages.anchors(target_file):
            yield f"{target}: {target_file.name} has no heading for #{anchor}"


def list_dead_paths(page: pathlib.Path) -> Iterator[str]:
    """Yield the paths in code that begin with a folder of the repository, not of what make builds, and do not exist.

    Links are checked above.
    """
    for path in re.findall(r"(?<!\[)`((?:[\w.-]+/)+[\w.-]*)`(?!\]|,? `)", pages.prose(page)):
        folder = path.partition("/")[0]
        if folder != "build" and (pages.ROOT / folder).is_dir() and not (pages.ROOT / path).exists():
            yield f"{path}: there is no such path"


# --- policies and manifests -----------------------------------------------------------------------------------


def list_rejected(page: pathlib.Path) -> Iterator[str]:
    """Yield errors: of policies from the reader, of workloads from the page's policy, or else the demo's."""
    policy, workloads = STAND_IN, []
    for block in pages.blocks(page):
        if block.language not in {"yaml", "yml"}:
            continue
        trees = [tree for tree in yaml.load_all(block.text, Loader=yaml.CSafeLoader) if isinstance(tree, dict)]
        if any({"apiVersion", "fabrics"} <= tree.keys() for tree in trees):
            result = policies.read_manifest(block.text)
            if isinstance(result, policies.RejectedPolicy):
                yield from (f"{block.title}: {error}" for error in result.errors)
            elif policy is STAND_IN:
                policy = result
        workloads += [(block.title, tree) for tree in trees if tree.get("kind")]
    for title, tree in workloads:
        for template in templates.list_templates(tree, templates.DEFAULT_NAMESPACE):
            given = previews.preview_admission(template, policy, previews.fill_caches({}))
            if given.is_rejected:
                yield f"{title}: {given.message}"
            elif names.FABRIC in yaml.safe_dump(tree) and not given.operations:
                yield f"{title}: nothing is injected"


# --- commands -------------------------------------------------------------------------------------------------


def list_misused(page: pathlib.Path) -> Iterator[str]:
    """Yield the commands that railwright's parsers refuse. In a sentence a command may lack parts."""
    for text, whole in sorted(set(list_commands(page))):
        why = parse(text)
        unfinished = "arguments are required" in why or "expected one argument" in why
        if why and not (unfinished and not whole):
            yield f"{text}: {why}"


def list_commands(page: pathlib.Path) -> Iterator[tuple[str, bool]]:
    """Yield each `railwright ...` of a page, and True if it is in a code block."""
    parts = [(part, False) for part in re.findall(r"`([^`\n]+)`", pages.prose(page))]
    for block in pages.blocks(page):
        if block.language in {"console", "shell", "sh", "bash"}:
            for line in block.text.replace("\\\n", " ").splitlines():
                parts += [(part, True) for part in re.split(r"\s(?:&&|\||>)\s", line.removeprefix("$ "))]
    for part, whole in parts:
        text = re.sub(r"^kubectl railwright\b", "railwright", part.strip())
        if not re.match(r"railwright [a-z]", text):
            continue
        text = re.sub(r"\s?\[[^\]]*\]", "", text)  # what may be left out
        choice = re.search(r"(?<=\s)[a-z]+(?:\|[a-z]+)+(?=\s|$)", text)  # `policy validate|schema` is two commands
        for word in choice[0].split("|") if choice else ("",):
            yield (text[: choice.start()] + word + text[choice.end() :] if choice else text), whole


def parse(text: str) -> str:
    """Return the error of the real parsers for a command line; "" if they accept it."""
    words = shlex.split(text, comments=True)[1:]
    if "..." in words:
        return ""
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
        try:
            call_parser(words)
        except SystemExit as leaving:
            return errors.getvalue() or str(leaving) if leaving.code else ""
    return ""


def call_parser(words: list[str]) -> None:
    if words[0] in SERVERS:
        settings.build_parser(words[0]).parse_args(words[1:])
    elif words[0] == "preflight":
        parser = preflight._build_parser()
        for action in parser._actions:
            action.required = False  # a page may speak of one option
        parser.parse_args(words[1:])
    elif words[1:]:
        dispatch.build_parser().parse(words)
    elif words[0] not in dispatch.COMMANDS:
        raise SystemExit(f"no command {words[0]}")


def list_unsafe(page: pathlib.Path) -> Iterator[str]:
    """Yield commands that would harm an installation."""
    text = page.read_text()
    for command in UPGRADE.findall(text.replace("upgrade --install", "upgrade")):
        if "--reset-then-reuse-values" not in command and "--values" not in command:
            yield f"{command}: would lose the values of the release"
    if "kubectl apply -k manifests/base" in text:
        yield "manifests/base names the image railwright:latest, which would replace that of an installation"
    webhooks, bindings = (
        [match.start() for match in re.finditer(rf"kubectl delete {kind}", text)]
        for kind in ("mutatingwebhookconfiguration", "validatingadmissionpolicybinding")
    )
    if webhooks and not (bindings and min(bindings) < min(webhooks)):
        yield "the bindings alone reject every labelled pod: delete them before the webhooks"


# --- what single pages say of the program and its manifests ---------------------------------------------------


def test_the_menu_of_the_site_has_every_page_once():
    def list_leaves(tree) -> list[str]:
        if isinstance(tree, str):
            return [tree]
        return [leaf for part in (tree.values() if isinstance(tree, dict) else tree) for leaf in list_leaves(part)]

    assert sorted(list_leaves(pages.SITE["nav"])) == sorted(str(page.relative_to(pages.DOCS)) for page in pages.PAGES)


def test_manifests_have_the_memory_that_the_status_page_recommends():
    """The documented request is for a small cluster, and the limit for the largest."""
    text = (pages.DOCS / "evidence" / "status.md").read_text()
    for server in SERVERS:
        rows = re.findall(rf"^\| {server} \| [^|]+ \| (\d+[MG]i) \| (\d+[MG]i) \|", text, re.MULTILINE)
        documents = yaml.safe_load_all((pages.ROOT / "manifests" / "base" / f"{server}.yaml").read_text())
        (deployment,) = [document for document in documents if document["kind"] == "Deployment"]
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        shipped = container["resources"]
        assert (shipped["requests"]["memory"], shipped["limits"]["memory"]) == (rows[0][0], rows[-1][1])
        assert "cpu" not in shipped["limits"]  # a throttled server is late, and late is what callers time out on


def test_the_runbook_lists_every_event_reason():
    constants = [
        value for name, value in vars(object_events).items() if name.isupper() and isinstance(value, str)
    ] + list(gang_tracker.EVENT_REASONS.values())
    posted = {value for value in constants if value[:1].isupper() and value.isalpha()} | {installed_names.OVERWRITTEN}
    events = (pages.DOCS / "runbook.md").read_text().partition("\n## Events\n")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", events, re.MULTILINE)) == posted


def test_every_threat_on_the_security_page_has_existing_tests():
    threats = re.findall(r"^\| (T\d+) \| [^|]+ \| [^|]+ \|$", (pages.DOCS / "security.md").read_text(), re.MULTILINE)
    tests = yaml.safe_load((pages.ROOT / "tests" / "data" / "threats.yaml").read_text())
    assert threats == list(tests)
    for number, names_by_path in tests.items():
        assert names_by_path, f"{number} names no test"
        for path, test_names in names_by_path.items():
            text = (pages.ROOT / "tests" / path).read_text()
            for name in test_names:
                assert re.search(rf"^(async )?def {name}\(", text, re.MULTILINE), f"{number}: {path} has no {name}"


def test_the_page_of_claims_names_each_driver_whose_slices_are_tested():
    table = (pages.ROOT / "docs" / "dynamic-resource-allocation.md").read_text()
    assert all(shapes.load(name).title in table for name in shapes.NAMES)
    slices = [tree for name in shapes.NAMES for tree in shapes.load(name).build_slices("n")]
    assert all(f"`{tree['spec']['driver']}`" in table for tree in slices)


def test_the_tested_versions_in_the_documentation_are_those_of_the_test_toolchain():
    pins = "".join(path.read_text() for path in (pages.ROOT / "tests").rglob("go.mod"))
    for versions in reference.read_versions().values():
        assert all(f" {version} " in pins or f" {version}\n" in pins for version in versions)
