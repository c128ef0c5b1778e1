"""Builds a node's programs once into a cache, from Go modules pinned by go.sum and from Debian packages.

runc, nft, busybox and the containerd of one node come from packages of the machine's Debian release, unpacked and never
installed. Standard library only, because `build.py` runs before Python packages are installed.
"""

import dataclasses
import functools
import hashlib
import pathlib
import platform
from collections.abc import Mapping

import debian
from plane import binaries

FOLDER = pathlib.Path(__file__).resolve().parent.parent
_PLUGINS = "github.com/containernetworking/plugins/plugins"
_WHEREABOUTS = "github.com/k8snetworkplumbingwg/whereabouts"
_CONTAINERD = "github.com/containerd/containerd/v2/cmd"
_SMALL = "-s -w"
PROGRAMS: Mapping[str, binaries.Program] = {
    "kubelet": binaries.Program("k8s.io/kubernetes/cmd/kubelet"),
    "kube-proxy": binaries.Program("k8s.io/kubernetes/cmd/kube-proxy"),
    "coredns": binaries.Program(".", module="coredns", ldflags=_SMALL),
    "deviceplugin": binaries.Program("./programs/deviceplugin", ldflags=_SMALL),
    "pause": binaries.Program("./programs/pause", ldflags=_SMALL),
    "cni/bridge": binaries.Program(f"{_PLUGINS}/main/bridge", ldflags=_SMALL),
    "cni/host-device": binaries.Program(f"{_PLUGINS}/main/host-device", ldflags=_SMALL),
    "cni/host-local": binaries.Program(f"{_PLUGINS}/ipam/host-local", ldflags=_SMALL),
    "cni/loopback": binaries.Program(f"{_PLUGINS}/main/loopback", ldflags=_SMALL),
    "cni/macvlan": binaries.Program(f"{_PLUGINS}/main/macvlan", ldflags=_SMALL),
    "cni/gids": binaries.Program("./programs/gids", ldflags=_SMALL),
    "cni/whereabouts": binaries.Program(f"{_WHEREABOUTS}/cmd", ldflags=_SMALL),
    "containerd/containerd": binaries.Program(f"{_CONTAINERD}/containerd", module="containerd", ldflags=_SMALL),
    "containerd/containerd-shim-runc-v2": binaries.Program(
        f"{_CONTAINERD}/containerd-shim-runc-v2", module="containerd", ldflags=_SMALL
    ),
    # containerd starts them; the numbers are their order
    "nri/10-ulimit-adjuster": binaries.Program(
        "github.com/containerd/nri/plugins/ulimit-adjuster", module="nri", ldflags=_SMALL
    ),
    "nri/20-injector": binaries.Program(".", module="nri", ldflags=_SMALL),
    # alone in a module, because it does not compile with the kubelet API of 0.34
    "cni/multus": binaries.Program(
        "gopkg.in/k8snetworkplumbingwg/multus-cni.v4/cmd/multus", module="multus", ldflags=_SMALL
    ),
}
# of virtual nodes, whose cgroup v2 it needs; in a cache of its own
KUBELET = binaries.Program("k8s.io/kubernetes/cmd/kubelet", module="kubelet", ldflags=binaries.stamp("1.37.2"))
_SEPARATE = ("dranet", "kubelet")  # modules that do not belong to PROGRAMS
CONTROL_PLANE = [name for name in binaries.PROGRAMS if name != "kwok"]  # which imitates nodes
PACKAGES = ("containerd", "runc", "nftables", "busybox-static")


@dataclasses.dataclass(frozen=True)
class Builds:
    """Ready programs of a node."""

    programs: pathlib.Path  # folder of PROGRAMS
    packages: pathlib.Path  # root of the unpacked PACKAGES

    @property
    def crds(self) -> pathlib.Path:
        """Folder of whereabouts' CustomResourceDefinitions."""
        return self.programs / "crds"

    @property
    def libraries(self) -> str:
        """LD_LIBRARY_PATH of Debian's programs."""
        return ":".join(debian.library_paths(self.packages))

    @property
    def busybox(self) -> pathlib.Path:
        """A static busybox."""
        return next(
            path for path in (self.packages / "bin/busybox", self.packages / "usr/bin/busybox") if path.exists()
        )


def folder() -> pathlib.Path:
    """Return the cache folder for these sums, sources and flags and this kind of machine."""
    sources = sorted([*FOLDER.rglob("go.mod"), *FOLDER.rglob("go.sum"), *FOLDER.rglob("*.go")])
    needed = [path for path in sources if path.parent.name not in _SEPARATE]
    return binaries.get_cache_folder("node", repr(sorted(PROGRAMS.items())).encode(), *needed)


def locate_kubelet() -> pathlib.Path:
    """Return where the kubelet of virtual nodes is, or will be."""
    return (
        binaries.get_cache_folder("node-kubelet", repr(KUBELET).encode(), *binaries.sums(FOLDER / KUBELET.module))
        / "kubelet"
    )


def get_kubelet_step() -> binaries.Step:
    """Return the step that builds the kubelet of virtual nodes."""
    path = locate_kubelet()
    make = functools.partial(binaries.compile_program, root=FOLDER, program=KUBELET, output=path)
    return binaries.Step("kubelet 1.37", path.parent, lambda: _find(path), lambda: make(binaries.toolchain()))


def package_root() -> pathlib.Path:
    """Return the cache folder of these packages of this release of Debian or a derivative."""
    release = pathlib.Path("/etc/os-release").read_bytes()
    key = hashlib.sha256(repr(PACKAGES).encode() + release).hexdigest()[:16]
    return binaries.cache() / f"node-packages-{platform.machine()}-{key}"


def locate() -> Builds:
    """Return the built programs. Raises FileNotFoundError that says what is missing and how to build it."""
    ready = Builds(folder(), package_root() / "root")
    required = [*(ready.programs / name for name in PROGRAMS), ready.crds, ready.packages / "complete"]
    for path in required:
        if not path.exists():
            raise FileNotFoundError(f"{path} is missing; run: .venv/bin/python tests/e2e/build.py")
    return ready


def fetch_packages() -> None:
    """Fetch the Debian packages unless they are there. Raises debian.UnavailableError."""
    with binaries.lock_folder(package_root()):
        debian.unpack(package_root() / "root", PACKAGES)


def list_steps() -> list[binaries.Step]:
    """Return the steps that build the programs and copy whereabouts' CustomResourceDefinitions."""
    target = folder()
    programs = [
        binaries.Step(name, target, functools.partial(_find, target / name), functools.partial(_build, name))
        for name in PROGRAMS
    ]
    return [*programs, binaries.Step("whereabouts' CRDs", target, lambda: _find(target / "crds"), _copy_crds)]


def _find(path: pathlib.Path) -> pathlib.Path | None:
    return path if path.exists() else None


def _build(name: str) -> None:
    output = folder() / name
    output.parent.mkdir(exist_ok=True)
    binaries.compile_program(binaries.toolchain(), PROGRAMS[name], FOLDER, output)


def _copy_crds() -> None:
    module = binaries.module_folder(binaries.toolchain(), _WHEREABOUTS, FOLDER)
    binaries.copy_manifests(module / "doc/crds", folder() / "crds", "whereabouts.cni.cncf.io_*.yaml")
