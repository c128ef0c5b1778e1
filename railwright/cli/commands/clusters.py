"""The commands for jobs and fabrics of a cluster: `gangs`, `fabric` and `dashboard`."""

import argparse

from railwright.cli import options, parsers


def _configure_gangs(parser: parsers.Parser) -> None:
    """Define the options of this command."""
    parser.add_argument("gang", metavar="GANG", nargs="?", default="", help="Describe this gang with all its pods.")
    options.add_namespace(parser, "Show gangs of one namespace (default: all namespaces).")
    parser.add_argument(
        "-A", "--all-namespaces", action="store_true", help="Show gangs of all namespaces (the default)."
    )
    parser.add_argument("--fabric", metavar="NAME", default="", help="Show gangs of one fabric.")
    parser.add_argument("--waiting", action="store_true", help="Show only gangs that are not fully placed.")
    options.add_selector(parser, "of a pod of the gang")
    options.add_output(parser, options.WIDE, options.NAME)
    options.add_no_headers(parser)
    options.add_watch(parser)
    options.add_snapshot(parser)
    options.add_policy(parser)
    options.add_cluster(parser.add_group("options for the cluster"))


def _load_gangs(_arguments: argparse.Namespace) -> parsers.Run:
    from railwright.cli import gang_tables

    return gang_tables.show


GANGS = parsers.Command(
    "List gangs or describe one: placed pods, leaves, bandwidth compared with the best possible, and why it waits.",
    _configure_gangs,
    _load_gangs,
    examples=("railwright gangs -n prod -o wide", "railwright gangs llama -n prod"),
    finding="a gang cannot be placed",
)


def _configure_fabric(parser: parsers.Parser) -> None:
    """Define the options of this command."""
    parser.add_argument("name", metavar="FABRIC", nargs="?", default="", help="Fabric to show (default: all).")
    parser.add_argument(
        "--nodes", action="store_true", help="Show a row for each node, even of fabrics with more than 64."
    )
    parser.add_argument("--leaves", action="store_true", help="Show no rows for nodes.")
    parser.add_argument(
        "--dead", action="store_true", help="Show only nodes that are not ready or have a dead or degraded rail."
    )
    options.add_selector(parser, "of the nodes")
    options.add_output(parser, options.WIDE, options.NAME)
    options.add_no_headers(parser)
    options.add_watch(parser)
    options.add_snapshot(parser)
    options.add_policy(parser)
    options.add_cluster(parser.add_group("options for the cluster"))


def _load_fabric(_arguments: argparse.Namespace) -> parsers.Run:
    from railwright.cli import fabric_tables

    return fabric_tables.show_fabrics


FABRIC = parsers.Command(
    "Show spines, leaves and nodes of each fabric, with their free, busy and dead rails.",
    _configure_fabric,
    _load_fabric,
    examples=("railwright fabric", "railwright fabric --dead -o wide"),
    finding="a rail is dead or degraded",
)


def _configure_dashboard(parser: parsers.Parser) -> None:
    """Define the options of this command."""
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        default="127.0.0.1:0",
        help="Address to listen on, loopback only (default: %(default)s).",
    )
    parser.add_argument("--open", action="store_true", help="Open the page in a browser.")
    options.add_snapshot(parser)
    options.add_policy(parser)
    options.add_cluster(parser.add_group("options for the cluster"))


def _load_dashboard(_arguments: argparse.Namespace) -> parsers.Run:
    from railwright.cli import dashboard

    return dashboard.run


DASHBOARD = parsers.Command(
    "Serve a live page with the fabrics, gangs and recent admissions on this machine.",
    _configure_dashboard,
    _load_dashboard,
    examples=("railwright dashboard --open", "railwright dashboard --snapshot snapshot.yaml --policy policy.yaml"),
)
