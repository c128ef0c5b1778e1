"""Drivers of RDMA devices in software, compiled from the source of Debian's kernel in the same version as its headers.

Soft iWARP (siw), because Debian's kernel lacks it, and soft RoCE (rxe) with a change. The kernel's own rxe looks up
routes and listens in the first network namespace only, and so carries nothing for pods: their interfaces are macvlan
ones in other namespaces. With the change it works for pods, as a card's driver does.
"""

import os
import pathlib
import re
import shutil
import subprocess
import tarfile

import debian

PACKAGES = ("linux-headers-amd64", "linux-source", "make")
MODULES = {"siw.ko": "siw", "rdma_rxe.ko": "rxe"}  # and the folders of their sources
_SOURCE = "drivers/infiniband/sw"
_INCLUDES = "#include <linux/if_macvlan.h>\n#include <net/net_namespace.h>\n#include <net/netns/generic.h>\n"
# a packet that arrives at a macvlan interface belongs to the device of the interface below it
_RECEIVE = "\tif (!rxe && netif_is_macvlan(ndev))\n\t\trxe = rxe_get_dev_from_net(macvlan_dev_real_dev(ndev));\n"
# each namespace but the first, for which rxe has one, gets a socket for the UDP port of RoCE v2
_SOCKETS = """
static unsigned int namespace_socket_id;

static int __net_init open_namespace_socket(struct net *net)
{
	struct socket **own = net_generic(net, namespace_socket_id);

	if (net_eq(net, &init_net))
		return 0;
	*own = rxe_setup_udp_tunnel(net, htons(ROCE_V2_UDP_DPORT), false);
	if (IS_ERR(*own))
		*own = NULL;
	return 0;
}

static void __net_exit close_namespace_socket(struct net *net)
{
	struct socket **own = net_generic(net, namespace_socket_id);

	rxe_release_udp_tunnel(*own);
}

static struct pernet_operations namespace_socket_ops = {
	.init = open_namespace_socket, .exit = close_namespace_socket,
	.id = &namespace_socket_id, .size = sizeof(struct socket *),
};

"""
_REGISTER = "\terr = register_pernet_device(&namespace_socket_ops);\n\tif (err)\n\t\tgoto err_out;\n"
_CHANGES = (  # of rxe_net.c: what is there once, and what it becomes
    (r"(?m)^#include <linux/if_vlan\.h>\n", rf"\g<0>{_INCLUDES}"),
    (r"ip_route_output_key\(&init_net,", "ip_route_output_key(dev_net(ndev),"),
    (r"ipv6_dst_lookup_flow\([^;]*;", "ipv6_dst_lookup_flow(dev_net(ndev), NULL, &fl6, NULL);"),
    (r"(?m)^\tif \(!rxe\)\n\t\tgoto drop;", rf"{_RECEIVE}\g<0>"),
    (r"(?m)^void rxe_net_exit\(void\)\n\{\n", rf"{_SOCKETS}\g<0>\tunregister_pernet_device(&namespace_socket_ops);\n"),
    (r"(?m)^\terr = register_netdevice_notifier\(", rf"{_REGISTER}\g<0>"),
)


def build(packages: pathlib.Path) -> None:
    """Compile the modules into the kernel's folder of updates unless they are there. Raises debian.UnavailableError.

    `packages` is the folder with PACKAGES, the kernel, kmod and what they depend on. Takes about a minute of CPU.
    """
    (tree,) = (packages / "lib/modules").iterdir()
    if (tree / "modules.dep").exists():
        return
    updates = tree / "updates"
    updates.mkdir(exist_ok=True)
    (archive,) = (packages / "usr/src").glob("linux-source-*.tar.xz")
    sources = packages / "sources"
    _unpack_sources(archive, sources)
    _change(sources / "rxe/rxe_net.c")
    (headers,) = (path.parent for path in (packages / "usr/src").glob("linux-headers-*/.config"))
    makefile = headers / "Makefile"
    text = makefile.read_text()
    if f" {packages}/usr/src/" not in text:
        makefile.write_text(text.replace(" /usr/src/", f" {packages}/usr/src/"))
    environment = {
        **os.environ,
        "PATH": f"{os.environ['PATH']}:{packages}/usr/bin",
        "LD_LIBRARY_PATH": ":".join(debian.library_paths(packages)),
    }
    options = ("CONFIG_RDMA_SIW=m", "CONFIG_RDMA_RXE=m", "modules")
    for name, driver in MODULES.items():
        command = ["make", "-C", str(headers), f"M={sources / driver}", *options]
        done = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
        if done.returncode:
            raise debian.UnavailableError(f"{name} does not compile on this kernel's headers: {done.stderr[-500:]}")
        module = sources / driver / name
        subprocess.run(["strip", "--strip-debug", str(module)], env=environment, check=True)
        module.rename(updates / name)
    shutil.rmtree(sources)
    archive.unlink()  # the whole kernel's source
    command = ["depmod", "--basedir", str(packages), tree.name]
    subprocess.run(command, executable=packages / "bin/kmod", env=environment, check=True)


def _unpack_sources(archive: pathlib.Path, target: pathlib.Path) -> None:
    """Unpack the drivers' folders, which follow one another in the archive."""
    shutil.rmtree(target, ignore_errors=True)
    has_begun = False
    with tarfile.open(archive, "r|xz") as tar:
        for member in tar:
            _, is_driver, path = member.name.partition(f"/{_SOURCE}/")
            driver, _, name = path.partition("/")
            if driver in MODULES.values() and name and member.isfile():
                (target / driver).mkdir(parents=True, exist_ok=True)
                tar.makefile(member, str(target / driver / name))
            if has_begun and not is_driver:
                break
            has_begun = bool(is_driver)


def _change(source: pathlib.Path) -> None:
    text = source.read_text()
    for pattern, replacement in _CHANGES:
        text, times = re.subn(pattern, replacement, text)
        if times != 1:
            raise debian.UnavailableError(f"{source.name} of this kernel has {pattern!r} {times} times, not once")
    source.write_text(text)
