"""Builds the job controllers of the tests, and Kueue: each from a Go module, once, with its installation manifests.

Each operator has a cache folder, whose key contains the sums of its module: a new version of one rebuilds no other.
Standard library only, because `build.py` runs before Python packages are installed.
"""

import dataclasses
import functools
import pathlib
import shutil
import subprocess
import tempfile
from collections.abc import Collection, Mapping

from plane import binaries

HEALTH_ADDRESS = "RAILWRIGHT_HEALTH_ADDRESS"  # read by the edit of mpi-operator below


@dataclasses.dataclass(frozen=True)
class Edit:
    """A line of a module's source that is replaced at build time. It must occur exactly once."""

    file: str
    before: str
    after: str


@dataclasses.dataclass(frozen=True)
class Operator:
    """A module, its command, the kustomization of its installation, and edits of its ports and files."""

    module: str
    command: str  # the package, below the module
    kustomization: str
    edits: tuple[Edit, ...] = ()


_CERTIFICATES = 'CertDir: os.TempDir() + "/k8s-webhook-server/serving-certs",'
# The edits change ports and files only: two runs on one machine must not share port 8080 or a file in /tmp, and tests
# listen on loopback only. How the controllers handle jobs is unchanged.
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
    "kueue": Operator("sigs.k8s.io/kueue", "cmd/kueue", "config/default"),
}


@dataclasses.dataclass(frozen=True)
class BuiltOperator:
    """A built operator: its program, and all objects of its installation in one YAML file."""

    program: pathlib.Path
    manifests: pathlib.Path


def get_folder(name: str) -> pathlib.Path:
    """Return the cache folder for the module's sums, its edits and the type of this machine."""
    parts = (*binaries.sums(binaries.FOLDER / name), repr(OPERATORS[name]).encode())
    return binaries.get_cache_folder(f"controller-{name}", *parts)


def locate(name: str) -> BuiltOperator:
    """Return a built operator. Raises FileNotFoundError that says how to build it."""
    if _find(name) is None:
        raise FileNotFoundError(f"{get_folder(name)} is not built; run: .venv/bin/python tests/integration/build.py")
    return BuiltOperator(get_folder(name) / name, get_folder(name) / "install.yaml")


def list_steps(names: Collection[str] = OPERATORS) -> list[binaries.Step]:
    """Return the steps that build these operators. They need kubectl, which renders the manifests."""
    return [
        binaries.Step(name, get_folder(name), functools.partial(_find, name), functools.partial(_build, name))
        for name in names
    ]


def _find(name: str) -> pathlib.Path | None:
    """Return the program, which a build writes last."""
    program = get_folder(name) / name
    return program if program.exists() else None


def _build(name: str) -> None:
    target, go = get_folder(name), binaries.toolchain()
    source = binaries.module_folder(go, OPERATORS[name].module, binaries.FOLDER / name)
    kubectl = binaries.locate(["kubectl"])["kubectl"]
    rendered = subprocess.run(
        [kubectl, "kustomize", str(source / OPERATORS[name].kustomization)], check=True, capture_output=True
    )
    _put(target / "install.yaml", rendered.stdout)
    package = f"{OPERATORS[name].module}/{OPERATORS[name].command}".rstrip("/")
    with tempfile.TemporaryDirectory(dir=target, prefix=".build.") as scratch:
        binary = pathlib.Path(scratch) / name
        options = ["-buildvcs=false", "-ldflags", "-s -w", *_apply_edits(name, source, binary.parent)]
        binaries.run([go, "build", *options, "-o", str(binary), package], binaries.FOLDER / name)
        binary.replace(target / name)


def _apply_edits(name: str, source: pathlib.Path, scratch: pathlib.Path) -> list[str]:
    """Copy the module with its edits. Return the option with which `go build` uses the copy."""
    operator = OPERATORS[name]
    if not operator.edits:
        return []
    copy = scratch / "source"
    shutil.copytree(source, copy, copy_function=shutil.copyfile, ignore=_list_unneeded)  # without the read-only modes
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


def _list_unneeded(_: str, names: list[str]) -> set[str]:
    return {name for name in names if name in ("docs", "examples", "sdk", "site", "test") or name.endswith("_test.go")}


def _put(path: pathlib.Path, content: bytes) -> None:
    temporary = path.with_name(f".{path.name}")
    temporary.write_bytes(content)
    temporary.replace(path)
