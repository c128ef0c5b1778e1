"""The project's words: no retired word, no citation of a missing document, functions named by verbs."""

import ast
import builtins
import functools
import io
import itertools
import pathlib
import re
import subprocess
import tokenize
from collections.abc import Iterator
from typing import NamedTuple

import pytest
import yaml

ROOT = pathlib.Path(__file__).parents[3]
WORDS = yaml.safe_load((ROOT / "tests" / "data" / "style" / "words.yaml").read_text())
NAMES: dict[str, str] = WORDS["names"]
TEXT = {re.compile(pattern): replacement for pattern, replacement in WORDS["text"].items()}
CITATIONS = {re.compile(pattern): replacement for pattern, replacement in WORDS["citations"].items()}
PAGE_TEXT = {re.compile(pattern): replacement for pattern, replacement in WORDS["pages"].items()}
ANY_TEXT = re.compile("|".join(pattern.pattern for pattern in (*TEXT, *CITATIONS)))  # ten times as fast as one by one
LINE_END = "\n"
PAGE_ENDINGS = {".md", ".yaml", ".txt", ".tpl"}
STARTS = tuple(WORDS["docstring_starts"])
PAGE = re.compile(r"(?<![\w/.-])((?:\.\./)*(?:[\w-]+/)*[\w-]+\.md)\b")
FORBIDDEN_START = re.compile(rf'"""\s*({"|".join(STARTS)})\b')
IDENTIFIER = re.compile(r"[^\W\d]\w*")
STRING = r'''(?:"""(?:[^\\]|\\[\s\S])*?"""|"(?:[^"\\\n]|\\[\s\S])*"|'(?:[^'\\\n]|\\[\s\S])*')'''
# The group has an f-string, which contains names.
PROSE = re.compile(rf"((?:[fF][rR]?|[rR][fF]){STRING})|{STRING}|#.*")
PACKAGES = ("railwright", "webhook", "extender", "certs", "fabric", "cluster", "serving", "dashboard", "cli",
            "simulator", "preflight", "documentation")  # fmt: skip
Definition = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


class Finding(NamedTuple):
    place: str
    problem: str
    replacement: str

    def __str__(self) -> str:
        return f"{self.place}: {self.problem}; write: {self.replacement}"


def find_names(tokens: list[tokenize.TokenInfo], path: str) -> Iterator[Finding]:
    for token in tokens:
        for replacement in list_replacements(token.string) if token.type == tokenize.NAME else ():
            yield Finding(f"{path}:{token.start[0]}", f"name {token.string!r}", replacement)


@functools.cache  # few of the names of a module are new
def list_replacements(name: str) -> list[str]:
    if hasattr(builtins, name):  # Python's names are not ours
        return []
    parts = [part.lower() for part in re.split(r"_+|(?<=[a-z])(?=[A-Z])", name)]
    pairs = itertools.pairwise(["", *parts])
    # "not found": Kubernetes' and cryptography's word for what does not exist
    words = [NAMES[part] for previous, part in pairs if part in NAMES and (previous, part) != ("not", "found")]
    whole = WORDS["whole_names"].get(name.strip("_"))
    return [whole, *words] if whole else words


def find_text(tokens: list[tokenize.TokenInfo], path: str, patterns: dict[re.Pattern[str], str]) -> Iterator[Finding]:
    texts = [token for token in tokens if token.type in (tokenize.COMMENT, tokenize.STRING)]
    for token in texts:
        for pattern, replacement in patterns.items():
            for match in pattern.finditer(token.string):
                line = token.start[0] + token.string[: match.start()].count("\n")
                yield Finding(f"{path}:{line}", f"{match[0]!r}", replacement)


def find_missing_pages(
    tokens: list[tokenize.TokenInfo], docstrings: list[tuple[int, str]], path: str
) -> Iterator[Finding]:
    """Check comments and docstrings only: other strings may name files that railwright writes."""
    texts = [(token.start[0], token.string) for token in tokens if token.type == tokenize.COMMENT]
    for line, text in [*texts, *docstrings]:
        for match in PAGE.finditer(text):
            if is_missing(match[1]):
                yield Finding(f"{path}:{line}", f"page {match[1]!r} is not in the repository", "the fact itself")


@functools.cache
def is_missing(page: str) -> bool:
    return not any((folder / page.lstrip("./")).exists() for folder in (ROOT, ROOT / "docs", ROOT / "tests"))


def definitions(statement: ast.AST) -> Iterator[Definition]:
    """Yield a module, its classes and its functions. Expressions, which are most of a tree, are not searched."""
    if isinstance(statement, Definition):
        yield statement
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        inner = getattr(statement, field, ())
        for child in inner if isinstance(inner, list) else ():
            yield from definitions(child)


def is_no_verb(name: str) -> bool:
    first_word = name.strip("_").partition("_")[0]
    is_participle = first_word.endswith(tuple(WORDS["participle_endings"])) and len(first_word) > 4
    is_whole = first_word == name.strip("_")
    is_retired = is_participle or (is_whole and first_word in WORDS["function_names"])
    return is_retired and first_word not in ("need", "needs", "feed", "seed", "embed")


def find_functions(nodes: list[Definition], path: str) -> Iterator[Finding]:
    for node in nodes:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if any(ast.unparse(decorator).endswith(("property", ".setter")) for decorator in node.decorator_list):
            continue
        if is_no_verb(node.name):
            yield Finding(f"{path}:{node.lineno}", f"function {node.name!r}", "a verb that says what the function does")


def find_docstrings(docstrings: list[tuple[int, str]], path: str) -> Iterator[Finding]:
    for line, text in docstrings:
        if text.split(" ")[0].rstrip(",:") in STARTS:
            yield Finding(f"{path}:{line}", f"docstring begins with {text[:30]!r}", "begin with a verb")


def is_suspect(source: str, path: str) -> bool:
    """Return whether a module may break a rule, by its text alone; tokens and syntax tree take ten times as long."""
    names = {name for name in IDENTIFIER.findall(PROSE.sub(r"\1", source)) if not is_exempt(name, path)}
    return (
        any(map(list_replacements, names))
        or ANY_TEXT.search(source) is not None
        or any(is_missing(match[1]) for match in PAGE.finditer(source))
        or (not path.startswith("tests/") and any(map(is_no_verb, re.findall(r"\bdef\s+(\w+)", source))))
        or FORBIDDEN_START.search(source) is not None
    )


def is_exempt(name: str, path: str) -> bool:
    """Return whether it is the name of a test, which may be an English sentence with any verb."""
    return path.startswith("tests/") and name.startswith("test_")


def check(source: str, path: str) -> list[Finding]:
    """Return what is wrong in a module."""
    if not is_suspect(source, path):
        return []
    tokens, nodes = list(tokenize.generate_tokens(io.StringIO(source).readline)), list(definitions(ast.parse(source)))
    docstrings = [(getattr(node, "lineno", 1), ast.get_docstring(node) or "") for node in nodes]
    return [
        *find_names([token for token in tokens if not is_exempt(token.string, path)], path),
        *find_text(tokens, path, {**TEXT, **CITATIONS}),
        *find_missing_pages(tokens, docstrings, path),
        *([] if path.startswith("tests/") else find_functions(nodes, path)),
        *find_docstrings(docstrings, path),
    ]


def list_files(*patterns: str) -> list[pathlib.PurePath]:
    command = ["git", "ls-files", *patterns]
    listing = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [path for path in map(pathlib.PurePath, listing.splitlines()) if (ROOT / path).exists()]


def test_no_retired_word_is_used():
    own = pathlib.PurePath(__file__).relative_to(ROOT)  # quotes what it looks for
    paths = [path for path in list_files("*.py") if path.parts[0] in (*PACKAGES, "tests") and path != own]
    findings = [str(finding) for path in paths for finding in check((ROOT / path).read_text(), str(path))]
    assert not findings, "\n" + "\n".join(findings)


def check_page(text: str, path: str) -> list[Finding]:
    """Check a page or manifest as a whole, because it has no comments and strings to tell apart."""
    return [
        Finding(f"{path}:{text.count(LINE_END, 0, match.start()) + 1}", repr(match[0]), replacement)
        for pattern, replacement in {**TEXT, **CITATIONS, **PAGE_TEXT}.items()
        for match in pattern.finditer(text)
    ]


def pages() -> list[pathlib.PurePath]:
    """List pages and manifests, without CONTRIBUTING.md, whose house style quotes retired words."""
    left_out = {"CONTRIBUTING.md", "tests"}
    paths = list_files("*.md", "docs", "manifests")
    return [path for path in paths if path.suffix in PAGE_ENDINGS and path.parts[0] not in left_out]


def test_no_retired_word_is_used_on_a_page_or_in_a_manifest():
    assert len(pages()) > 80
    findings = [str(finding) for path in pages() for finding in check_page((ROOT / path).read_text(), str(path))]
    assert not findings, "\n" + "\n".join(findings)


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("told = 1\n", "name 'told'"),
        ("names = [each.name for pod in pods]\n", "name 'each'"),
        ("class NodeLedger:\n    pass\n", "name 'NodeLedger'"),
        ("# the gang's mates\n", "'mates'"),
        ('"""A broken policy is mended."""\n', "'mended'"),
        ("x = 1  # by ruling 12\n", "'ruling 12'"),
        ("x = f'{told} \\'' + '\"' + \"\"  # found\n", "name 'told'"),
        ("x = '\"'; told = 1; y = '\"'\n", "name 'told'"),
        ('"""See nowhere.md."""\n', "page 'nowhere.md' is not in the repository"),
        ("def of(pod):\n    pass\n", "function 'of'"),
        ("def charged(zones):\n    pass\n", "function 'charged'"),
        ('def f():\n    """What a node has."""\n', "docstring begins with 'What a node has.'"),
    ],
)
def test_each_rule_finds_its_case(source, problem):
    assert problem in [finding.problem for finding in check(source, "file.py")]


def test_one_module_at_most_is_called_model():
    paths = [path for path in list_files("*.py") if path.parts[0] in PACKAGES and path.name == "model.py"]
    assert len(paths) <= 1, f"{paths}: name each after what it defines"
