"""The dashboard of rails and caches: the panels and their order."""

from panels import SOURCE, Json, dashboard, panel, row, stat

FABRIC: Json = {
    "name": "fabric",
    "label": "Fabric",
    "type": "query",
    "datasource": SOURCE,
    "query": "label_values(railwright_rail_devices, fabric)",
    "definition": "label_values(railwright_rail_devices, fabric)",
    "includeAll": True,
    "multi": True,
    "allValue": ".+",
    "refresh": 2,
    "current": {"text": "All", "value": "$__all"},
}

RAILS = 'railwright_rail_devices{{fabric=~"$fabric", state="{}"}}'

DASHBOARD = dashboard(
    "fabric",
    "Fabric",
    "Devices of every rail, the servers' caches of the cluster, and their age.",
    [
        *(
            stat(
                f"{state.capitalize()} devices",
                text,
                f"sum(max by (fabric, rail) ({RAILS.format(state)}))",
                red=1 if state == "dead" else None,
            )
            for state, text in (
                ("free", "Devices available to new pods."),
                ("busy", "Devices used by bound pods."),
                (
                    "dead",
                    "In the node's capacity but not allocatable. Devices of claims: tainted.",
                ),
                ("missing", "Nodes without a device of the rail that have devices of other rails of the fabric."),
                ("unschedulable", "Unused, on a node that is cordoned or not Ready."),
            )
        ),
        stat(
            "Nodes without a domain",
            "Their leaf is unknown, so pods are placed on them last.",
            "sum(max by (domain) (railwright_nodes_without_domain))",
            red=1,
        ),
        stat("Nodes", "Nodes in the extender's cache.", 'max(railwright_cache_objects{kind="nodes"})'),
        row("Rails"),
        *(
            panel(
                f"{state.capitalize()}",
                text,
                (f"max by (fabric, rail) ({RAILS.format(state)})", "{{fabric}} {{rail}}"),
                width=12,
                stacked=state not in {"dead", "missing"},
            )
            for state, text in (
                ("free", "By rail. If rails differ, some pods use fewer rails than the fabric has."),
                ("busy", "By rail."),
                ("dead", "By rail. The runbook entry RailwrightRailsDead shows how to find the nodes."),
                (
                    "missing",
                    "By rail, in nodes. Not 0 where some node types have fewer rails.",
                ),
                ("unschedulable", "By rail. Healthy and unused, but the node accepts no pods."),
            )
        ),
        panel(
            "Utilization",
            "Busy devices relative to healthy devices.",
            (
                (
                    f"sum by (fabric) (max by (fabric, rail) ({RAILS.format('busy')})) / sum by (fabric) "
                    '(max by (fabric, rail, state) (railwright_rail_devices{fabric=~"$fabric", state!~"dead|missing"}))'
                ),
                "{{fabric}}",
            ),
            unit="percentunit",
        ),
        panel(
            "Overcommitted",
            "Devices that bound pods use but nodes do not offer: a NIC failed, or was assigned twice.",
            (
                'max by (fabric, rail) (railwright_overcommitted_devices{fabric=~"$fabric"})',
                "{{fabric}} {{rail}}",
            ),
            red=1,
        ),
        panel(
            "Nodes without a domain",
            "By key of the domain in the policy.",
            ("max by (domain) (railwright_nodes_without_domain)", "{{domain}}"),
        ),
        row("Caches"),
        panel(
            "Age of caches",
            "Time since the last contact with the API server, which sends a bookmark every minute.",
            ("max by (component, kind) (railwright_cache_age_seconds)", "{{component}} {{kind}}"),
            unit="s",
            red=300,
        ),
        panel(
            "Objects in caches",
            "By kind.",
            ("max by (component, kind) (railwright_cache_objects)", "{{component}} {{kind}}"),
        ),
        panel(
            "Restarted watches",
            "By kind and reason; and objects skipped because they could not be decoded.",
            (
                "sum by (kind, reason) (increase(railwright_watch_restarts_total[$__rate_interval]))",
                "{{kind}} {{reason}}",
            ),
            (
                "sum by (kind) (increase(railwright_watch_skipped_total[$__rate_interval]))",
                "{{kind}} skipped",
            ),
        ),
        panel(
            "Certificates",
            "Time until each serving certificate expires.",
            ("min by (pod) (railwright_certificate_seconds_left < +Inf)", "{{pod}}"),
            unit="s",
        ),
        panel(
            "Policy",
            "Number of valid policies loaded since the start, and whether the newest is in force.",
            ("max by (component) (railwright_policy_generation)", "reads {{component}}"),
            ("min by (component) (railwright_policy_valid)", "valid {{component}}"),
        ),
        panel(
            "Event loops",
            "Longest delay in the last 30 seconds.",
            ("max by (component, pod) (railwright_event_loop_lag_seconds)", "{{pod}}"),
            unit="s",
            red=0.5,
        ),
    ],
    [FABRIC],
)
