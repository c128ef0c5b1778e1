"""Where the controllers of jobs come from: a Go module each, built once, with the manifests it is installed by.

Owns the table of operators and a cache folder for each, keyed by its own module's sums: a new one rebuilds no other.
Standard library only, as `binaries`, because `build.py` runs it before anything is proven to be installed.
"""

import dataclasses
import hashlib
import pathlib
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping

from plane import binaries

HEALTH_ADDRESS = "RAILWRIGHT_HEALTH_ADDRESS"  # read by the edit of mpi-operator below


@dataclasses.dataclass(frozen=True)
class Edit:
    """One line of a module's source replaced at build time; it has to be there once."""

    file: str
    before: str
    after: str


@dataclasses.dataclass(frozen=True)
class Operator:
    """A module, its command, the kustomization it is installed by, and edits of where it listens and reads."""

    module: str
    command: str  # the package, below the module
    kustomization: str
    edits: tuple[Edit, ...] = ()


_CERTIFICATES = 'CertDir: os.TempDir() + "/k8s-webhook-server/serving-certs",'
# The edits move ports and files only: two runs on one machine must not meet on port 8080 or in /tmp, and nothing of a
# test listens on more than loopback. What the controllers make of a job is untouched.
OPERATORS: Mapping[str, Operator] = {
    "mpi-operator": Operator(
        "github.com/kubeflow/mpi-operator",
        "cmd/mpi-operator",
        "manifests/overlays/standalone",
        edits=(
            Edit(
                "cmd/mpi-operator/app/server.go",
                'Addr:    fmt.Sprintf(":%d", healthCheckPort),',
                f'Addr: os.Getenv("{HEALTH_ADDRESS}"),',
            ),
        ),
    ),
    "training-operator": Operator(
        "github.com/kubeflow/training-operator",
        "cmd/training-operator.v1",
        "manifests/overlays/standalone",
        edits=(
            Edit(
                "cmd/training-operator.v1/main.go",
                "Port: webhookServerPort,",
                'Host: "127.0.0.1", Port: webhookServerPort,',
            ),
            Edit("pkg/cert/cert.go", "CertDir:        certDir,", _CERTIFICATES),
        ),
    ),
    "jobset": Operator(
        "sigs.k8s.io/jobset",
        "",
        "config/default",
        edits=(Edit("pkg/util/cert/cert.go", "CertDir:        certDir,", _CERTIFICATES),),
    ),
    "lws": Operator("sigs.k8s.io/lws", "cmd", "config/default"),
}


@dataclasses.dataclass(frozen=True)
class Ready:
    """A built operator: its program, and all objects of its installation in one YAML file."""

    program: pathlib.Path
    manifests: pathlib.Path


def folder(name: str) -> pathlib.Path:
    """The cache folder of exactly these sums, edits and this kind of machine."""
    digest = hashlib.sha256()
    for part in ("go.mod", "go.sum"):
        digest.update((binaries.FOLDER / name / part).read_bytes())
    digest.update(repr(OPERATORS[name]).encode())
    key = digest.hexdigest()[:16]
    return binaries.cache() / f"controller-{name}-{sys.platform}-{platform.machine()}-{key}"


def locate(name: str) -> Ready:
    """Return what is ready. Raises FileNotFoundError that says what is missing and how to build it."""
    ready = Ready(folder(name) / name, folder(name) / "install.yaml")
    for path in (ready.program, ready.manifests):
        if not path.exists():
            raise FileNotFoundError(f"{path} is missing; run: .venv/bin/python tests/controlplane/build.py")
    return ready


def build(kubectl: str) -> None:
    """Build what is missing, telling a line an operator; `kubectl` renders the manifests."""
    for number, name in enumerate(OPERATORS, 1):
        target = folder(name)
        with binaries.alone(target):
            binaries.tell(f"[{number}/{len(OPERATORS)}] {name}: {_build(name, target, kubectl)}")


def _build(name: str, target: pathlib.Path, kubectl: str) -> str:
    program, manifests = target / name, target / "install.yaml"
    if program.exists() and manifests.exists():
        return "there"
    started = time.monotonic()
    go = binaries.toolchain()
    source = binaries.module_folder(go, OPERATORS[name].module, binaries.FOLDER / name)
    rendered = subprocess.run(
        [kubectl, "kustomize", str(source / OPERATORS[name].kustomization)], check=True, capture_output=True
    )
    _put(manifests, rendered.stdout)
    package = f"{OPERATORS[name].module}/{OPERATORS[name].command}".rstrip("/")
    with tempfile.TemporaryDirectory(dir=target, prefix=".build.") as scratch:
        made = pathlib.Path(scratch) / name
        options = ["-buildvcs=false", "-ldflags", "-s -w", *_edited(name, source, made.parent)]
        binaries.run([go, "build", *options, "-o", str(made), package], binaries.FOLDER / name)
        made.replace(program)
    return f"built in {time.monotonic() - started:.0f} s"


def _edited(name: str, source: pathlib.Path, scratch: pathlib.Path) -> list[str]:
    """Copy the module with its edits, and return the option by which `go build` takes the copy in its place."""
    operator = OPERATORS[name]
    if not operator.edits:
        return []
    copy = scratch / "source"
    shutil.copytree(source, copy, copy_function=shutil.copyfile, ignore=_unneeded)  # not the read-only modes
    for edit in operator.edits:
        path = copy / edit.file
        text = path.read_text()
        if text.count(edit.before) != 1:
            raise ValueError(f"{edit.file} has {text.count(edit.before)} times {edit.before!r}: fix the edit of {name}")
        path.write_text(text.replace(edit.before, edit.after))
    module = binaries.FOLDER / name
    (scratch / "go.mod").write_text(f"{(module / 'go.mod').read_text()}\nreplace {operator.module} => {copy}\n")
    shutil.copyfile(module / "go.sum", scratch / "go.sum")
    return [f"-modfile={scratch / 'go.mod'}"]


def _unneeded(_: str, names: list[str]) -> set[str]:
    return {name for name in names if name in ("docs", "examples", "sdk", "site", "test") or name.endswith("_test.go")}


def _put(path: pathlib.Path, content: bytes) -> None:
    temporary = path.with_name(f".{path.name}")
    temporary.write_bytes(content)
    temporary.replace(path)
