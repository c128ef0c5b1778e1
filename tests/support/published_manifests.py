"""Manifests that vendors publish: the files of a repository in which lint has containers or claims to check.

tests/data/published has them for the repositories whose licence allows copies. This program writes that folder from a
folder of clones, each as OWNER/NAME: `PYTHONPATH=. .venv/bin/python tests/support/published_manifests.py CLONES HELM`.
"""

import collections
import itertools
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

import msgspec
import yaml

from railwright.cli import linted_files, output
from railwright.fabric.lint import rank_contexts, workloads

FOLDER = pathlib.Path(__file__).parents[1] / "data" / "published"
_NAME = re.compile(r"\.ya?ml([-.](template|tpl|tmpl|example))?$")
_DRIVER_TESTS = "tests/manifests/"
# Files without these have nothing that lint reads. Most of them are much faster to search than to parse.
_HAS_POD = re.compile(r"^\s*(-\s+)?containers:|^kind: ResourceClaimTemplate", re.MULTILINE)
_HAS_NETWORK = re.compile(
    r"NCCL_|rdma|infiniband|vpc\.amazonaws\.com/efa|UCX_|networking\.gke\.io|nvidia\.com/gpu|mlnxnics|hostdev"
    r"|resourceClaims|k8s\.v1\.cni|ResourceClaimTemplate|FI_PROVIDER|tcpx",
    re.IGNORECASE,
)
_CLAIMS = "ResourceClaimTemplate"
_API_KEY = re.compile(r"\bsk-\w{20,}")  # of examples; scanners for secrets report them
_RELEASE = "recipe"
_NOTE = """\
# The pods and claims that each of these commands gives. What lint reads of them is the same but for names, numbers of
# pods and versions of images. Objects of other kinds are left out.
"""


def read_index() -> list[dict[str, Any]]:
    """Return a row for each repository: commit, licence, charts, and what lint finds."""
    rows: list[dict[str, Any]] = yaml.safe_load((FOLDER / "index.yaml").read_text())
    return rows


def read_stored(row: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield path and text of the stored manifests of a repository."""
    folder = FOLDER / row["repository"]
    for path in sorted(folder.rglob("*")):
        if path.is_file() and _NAME.search(path.name):
            yield str(path.relative_to(folder)), path.read_text()


def read_clone(row: dict[str, Any], clones: pathlib.Path) -> Iterator[tuple[str, str]]:
    """Yield path and text of the manifests of a repository in which lint has something to check."""
    listed = _run_git(row, clones, "ls-tree", "-r", "--name-only", row["commit"])
    for path in listed.decode().splitlines():
        if _NAME.search(path) and _DRIVER_TESTS not in path:
            text = _run_git(row, clones, "show", f"{row['commit']}:{path}").decode("utf-8", "replace")
            if _HAS_POD.search(text) and _HAS_NETWORK.search(text) and _count_checked(path, text):
                yield path, text


def _run_git(row: dict[str, Any], clones: pathlib.Path, *words: str) -> bytes:
    command = ["git", "-C", str(clones / row["repository"]), *words]
    return subprocess.run(command, check=True, capture_output=True).stdout


def _count_checked(path: str, text: str) -> int:
    try:
        return linted_files.check_file(linted_files.read_file(path, text), linted_files.Context()).checked
    except output.UnreadableError:  # a template of Helm
        return 0


def _render_charts(row: dict[str, Any], clones: pathlib.Path, helm: str) -> Iterator[tuple[str, str]]:
    """Yield path and text of the pods and claims of the charts. Charts that lint reads alike have one text."""
    rendered: dict[str, tuple[str, list[str]]] = {}
    charts = row["charts"]
    with tempfile.TemporaryDirectory() as folder:
        words = {word.rpartition("=")[2] for line in charts for word in shlex.split(line) if "/" in word}
        for path in _run_git(row, clones, "ls-tree", "-r", "--name-only", row["commit"], *words).decode().splitlines():
            target = pathlib.Path(folder, path)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(_run_git(row, clones, "show", f"{row['commit']}:{path}"))
        for line in charts:
            command = [helm, "template", _RELEASE, *shlex.split(line)]
            run = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
            documents = re.split(r"^---$", run.stdout, flags=re.MULTILINE)
            pods = "---".join(document for document in documents if _is_read(document))
            _, commands = rendered.setdefault(_describe_ranks(pods), (pods, []))
            commands.append(line)
    names = collections.Counter[str]()
    for text, commands in rendered.values():
        name = _name_rendered(commands[0])
        names[name] += 1
        number = f"-{names[name]}" if names[name] > 1 else ""
        lines = [f"# helm template {_RELEASE} {line}\n" for line in commands]
        yield f"{name}{number}.yaml", "".join([_NOTE, *lines, "---", text])


def _is_read(document: str) -> bool:
    tree = yaml.safe_load(document)
    return tree is not None and (tree["kind"] == _CLAIMS or any(workloads.read(tree)))


def _describe_ranks(text: str) -> str:
    """Return what lint reads of pods and claims, without names, numbers of pods and versions of images."""
    described: list[object] = []
    for tree in yaml.safe_load_all(text):
        for workload in workloads.read(tree):
            for template in workload.templates:
                for index in range(len(template.pod.spec.containers)):
                    ranks = rank_contexts.build(template.pod, index, rank_contexts.JobContext())
                    image = (ranks.image or "").partition(":")[0]
                    described.append(msgspec.structs.replace(ranks, image=image, images=frozenset()))
        described.append(tree["spec"] if tree["kind"] == _CLAIMS else tree["kind"])
    return repr(described)


def _name_rendered(line: str) -> str:
    """Return the path of what a chart gives: beside its values."""
    words = shlex.split(line)
    values = [following for word, following in itertools.pairwise(words) if word == "-f"]
    return f"{values[-1].removesuffix('.yaml')}.rendered" if values else f"{words[0]}/rendered"


def main() -> None:
    """Write the folder of each repository whose licence allows copies."""
    clones, helm = pathlib.Path(sys.argv[1]), sys.argv[2]
    for row in read_index():
        folder = FOLDER / row["repository"]
        shutil.rmtree(folder, ignore_errors=True)
        manifests = [] if "reason" in row else [*read_clone(row, clones)]
        if "charts" in row:
            manifests += _render_charts(row, clones, helm)
        if manifests:
            licence = _run_git(row, clones, "show", f"{row['commit']}:LICENSE").decode()
            for path, text in (("LICENSE", licence), *manifests):
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                (folder / path).write_text(_API_KEY.sub("sk-removed", text))


if __name__ == "__main__":
    main()
