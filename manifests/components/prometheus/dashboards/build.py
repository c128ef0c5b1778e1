"""Writes the three Grafana dashboards beside this file: `python manifests/components/prometheus/dashboards/build.py`.

Owns the panels and their order; each panel is one call. Positions panels from left to right, row by row, without
overlap. A test fails if the JSON is out of date.
"""

import json
import pathlib
from collections.abc import Sequence
from typing import Any

FOLDER = pathlib.Path(__file__).parent
SCHEMA = 39  # Grafana 10.4 and newer can read and migrate it
WIDTH = 24  # columns of a dashboard
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
Json = dict[str, Any]


def panel(  # noqa: PLR0913 - one argument per property, most by name
    title: str,
    text: str,
    *queries: tuple[str, str],
    unit: str = "short",
    kind: str = "timeseries",
    width: int = 8,
    height: int = 8,
    red: float | None = None,
    stacked: bool = False,
) -> Json:
    """Return a panel. `queries` are pairs of PromQL and legend. Values from `red` on are shown in red."""
    steps = [{"color": "green", "value": None}, *([{"color": "red", "value": red}] if red is not None else [])]
    defaults: Json = {"unit": unit, "min": 0, "thresholds": {"mode": "absolute", "steps": steps}}
    if kind == "timeseries":
        defaults["custom"] = {"fillOpacity": 10, "stacking": {"mode": "normal" if stacked else "none"}}
    options: Json = {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "background"} if kind == "stat" else {}
    if kind == "heatmap":
        options = {"calculate": False, "yAxis": {"unit": unit}}
    return {
        "type": kind,
        "title": title,
        "description": text,
        "datasource": SOURCE,
        "gridPos": {"w": width, "h": height},
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": options,
        "targets": [
            {
                "refId": chr(ord("A") + number),
                "datasource": SOURCE,
                "expr": query,
                "legendFormat": legend,
                "format": "heatmap" if kind == "heatmap" else "time_series",
                "instant": kind == "stat",
            }
            for number, (query, legend) in enumerate(queries)
        ],
    }


def stat(title: str, text: str, query: str, *, unit: str = "short", red: float | None = None) -> Json:
    """Return a panel with a single number."""
    return panel(title, text, (query, ""), unit=unit, kind="stat", width=4, height=4, red=red)


def row(title: str) -> Json:
    """Return a heading."""
    return {"type": "row", "title": title, "collapsed": False, "panels": [], "gridPos": {"w": WIDTH, "h": 1}}


def quantiles(metric: str, by: str, where: str = "") -> Sequence[tuple[str, str]]:
    """Return queries for the median and the 99th percentile of a histogram, by a label."""
    rate = f"sum by (le, {by}) (rate({metric}_bucket{where}[$__rate_interval]))"
    return [(f"histogram_quantile({share}, {rate})", f"p{share * 100:.0f} {{{{{by}}}}}") for share in (0.5, 0.99)]


def dashboard(name: str, title: str, text: str, panels: Sequence[Json], variables: Sequence[Json] = ()) -> Json:
    """Return a dashboard. Its uid, which links use, derives from `name`."""
    source = {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}
    return {
        "uid": f"railwright-{name}",
        "title": f"railwright / {title}",
        "description": text,
        "tags": ["railwright"],
        "schemaVersion": SCHEMA,
        "version": 1,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": [source, *variables]},
        "links": [
            {"type": "dashboards", "tags": ["railwright"], "title": "railwright", "asDropdown": True, "keepTime": True}
        ],
        "panels": lay_out(panels),
    }


def lay_out(panels: Sequence[Json]) -> list[Json]:
    """Return the panels with their ids and positions, from left to right."""
    x = y = tallest = 0
    positioned = []
    for number, panel_json in enumerate(panels, 1):
        size = panel_json["gridPos"]
        if x + size["w"] > WIDTH:
            x, y, tallest = 0, y + tallest, 0
        positioned.append({"id": number, **panel_json, "gridPos": {"x": x, "y": y, **size}})
        x, tallest = x + size["w"], max(tallest, size["h"])
    return positioned


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

ADMISSION = dashboard(
    "admission",
    "Admission",
    "Decisions of the webhook about pods and workloads, and their duration.",
    [
        stat("Webhooks up", "Replicas that Prometheus can scrape.", 'sum(up{job="railwright", component="webhook"})'),
        stat(
            "Uninjected pods",
            "Opted-in pods that run or are pending without injection: they may use TCP. Investigate any value above 0.",
            "sum(max by (fabric) (railwright_uninjected_pods))",
            red=1,
        ),
        stat("Policy valid", "1 if the newest policy is in force.", "min(railwright_policy_valid)"),
        stat(
            "Policies in force",
            "Number of different policies in all replicas. More than 1 for a long time is a problem.",
            "count(count by (digest) (railwright_policy_info == 1))",
            red=2,
        ),
        stat(
            "Certificate validity",
            "Time until the first serving certificate expires.",
            'min(railwright_certificate_seconds_left{component="webhook"} < +Inf)',
            unit="s",
        ),
        stat(
            "p99 of a review",
            "99 % of the reviews of pods take at most this long in the webhook.",
            "histogram_quantile(0.99, sum by (le) "
            '(rate(railwright_webhook_request_duration_seconds_bucket{path="/mutate/pods"}[5m])))',
            unit="s",
            red=0.1,
        ),
        row("Decisions"),
        panel(
            "Opted-in pods",
            "By fabric and outcome: patched, allowed (nothing to add) or refused.",
            (
                "sum by (fabric, outcome) (rate(railwright_webhook_injections_total[$__rate_interval]))",
                "{{fabric}} {{outcome}}",
            ),
            ("sum(rate(railwright_webhook_skipped_total[$__rate_interval]))", "did not opt in"),
            unit="reqps",
        ),
        panel(
            "Rejections",
            "By fabric and reason. The message is in an Event of the pod's owner.",
            (
                "sum by (fabric, reason) (rate(railwright_webhook_refusals_total[$__rate_interval]))",
                "{{fabric}} {{reason}}",
            ),
            unit="reqps",
        ),
        panel(
            "Workloads",
            "Reviewed workloads with pod templates, by kind and outcome.",
            (
                "sum by (kind, outcome) (rate(railwright_webhook_workloads_total[$__rate_interval]))",
                "{{kind}} {{outcome}}",
            ),
            unit="reqps",
        ),
        panel(
            "Patch operations",
            "A complete injection has 12 to 40 operations; 0 means that the pod has everything already.",
            ("sum by (le) (increase(railwright_webhook_patch_operations_bucket[$__rate_interval]))", "{{le}}"),
            kind="heatmap",
        ),
        panel(
            "Warnings and Events",
            "Admission warnings, and Events by result.",
            ("sum(rate(railwright_webhook_warnings_total[$__rate_interval]))", "warnings"),
            ("sum by (outcome) (rate(railwright_webhook_events_total[$__rate_interval]))", "Events {{outcome}}"),
            unit="cps",
        ),
        panel(
            "Uninjected pods by fabric",
            "Running or pending pods that opted in but have no injection record.",
            ("max by (fabric) (railwright_uninjected_pods)", "{{fabric}}"),
            red=1,
        ),
        panel(
            "ResourceClaimTemplates",
            "Written and removed templates by result, and those that pods wait for.",
            ("sum by (outcome) (rate(railwright_claim_templates_total[$__rate_interval]))", "{{outcome}} per second"),
            ("max(railwright_claim_templates_missing)", "missing"),
        ),
        row("Duration"),
        panel(
            "Duration in the webhook",
            "From the last byte of the request to the response.",
            *quantiles("railwright_webhook_request_duration_seconds", "path"),
            unit="s",
        ),
        panel(
            "Duration as the API server sees it",
            "Including connection, TLS and network, from the API server's metrics.",
            *quantiles(
                "apiserver_admission_webhook_admission_duration_seconds", "name", '{name=~".+[.]railwright[.]io"}'
            ),
            unit="s",
        ),
        panel(
            "Failed calls",
            "Counted by the API server: failed calls of the webhook, and objects admitted without it.",
            (
                (
                    "sum by (name) (rate(apiserver_admission_webhook_rejection_count"
                    '{name=~".+[.]railwright[.]io", error_type="calling_webhook_error"}[$__rate_interval]))'
                ),
                "rejected {{name}}",
            ),
            (
                (
                    "sum by (name) (rate(apiserver_admission_webhook_fail_open_count"
                    '{name=~".+[.]railwright[.]io"}[$__rate_interval]))'
                ),
                "admitted {{name}}",
            ),
            unit="reqps",
        ),
        row("Servers"),
        panel(
            "Reviews",
            "By path and outcome.",
            (
                "sum by (path, outcome) (rate(railwright_webhook_requests_total[$__rate_interval]))",
                "{{path}} {{outcome}}",
            ),
            unit="reqps",
        ),
        panel(
            "Rejected requests and connections",
            "Requests rejected before they reached a handler, by status; open connections.",
            ("sum by (code) (rate(railwright_http_rejected_total[$__rate_interval]))", "{{code}} per second"),
            ("sum by (pod) (railwright_connections)", "connections {{pod}}"),
        ),
        panel(
            "Event loop",
            "Longest delay in the last 30 seconds. Every response may have been delayed as long.",
            ("max by (pod) (railwright_event_loop_lag_seconds)", "{{pod}}"),
            unit="s",
            red=0.5,
        ),
        panel(
            "Memory",
            "Resident memory, by pod.",
            ('process_resident_memory_bytes{job="railwright"}', "{{pod}}"),
            unit="bytes",
        ),
        panel(
            "CPU",
            "CPU cores, by pod.",
            ('rate(process_cpu_seconds_total{job="railwright"}[$__rate_interval])', "{{pod}}"),
            unit="short",
        ),
        panel(
            "Versions and policies",
            "Pods by version and by policy in force.",
            ("count by (version, server) (railwright_build_info)", "{{server}} {{version}}"),
            ("count by (digest) (railwright_policy_info == 1)", "{{digest}}"),
        ),
    ],
)

SCHEDULING = dashboard(
    "scheduling",
    "Scheduling",
    "Requests of schedulers, placements of gangs, and waiting gangs.",
    [
        stat("Leaders", "Extenders that answer schedulers. It should be 1.", "sum(railwright_leader)", red=2),
        stat(
            "Gangs waiting",
            "Gangs with unbound pods that a scheduler has asked about.",
            "max(railwright_gangs_waiting)",
        ),
        stat(
            "Longest wait",
            "Time since the first request for the gang that has waited longest.",
            "max(railwright_gang_longest_wait_seconds)",
            unit="s",
            red=3600,
        ),
        stat(
            "Placed as well as possible",
            "Share of the last day's gangs with the outcome compact.",
            'sum(increase(railwright_gangs_total{outcome="compact"}[1d])) / '
            'sum(increase(railwright_gangs_total{outcome=~"compact|spread|degraded"}[1d]))',
            unit="percentunit",
        ),
        stat(
            "Bandwidth attained",
            "Mean over the last day's gangs: modelled bandwidth relative to the best possible when they were planned.",
            "sum(increase(railwright_gang_attained_ratio_sum[1d])) / "
            "sum(increase(railwright_gang_attained_ratio_count[1d]))",
            unit="percentunit",
        ),
        stat(
            "Assumed pods",
            "Pods that a scheduler has announced and whose binding is not visible yet.",
            "sum(railwright_assumed_pods)",
        ),
        row("Gangs"),
        panel(
            "Gangs by outcome",
            "compact: as well as possible; spread: more leaves; degraded: less bandwidth; unplaceable: does not fit.",
            ("sum by (outcome) (increase(railwright_gangs_total[$__rate_interval]))", "{{outcome}}"),
            stacked=True,
        ),
        panel(
            "Bandwidth relative to the best possible",
            "Modelled bandwidth of placed gangs relative to the best possible when they were planned.",
            ("sum by (le) (increase(railwright_gang_attained_ratio_bucket[$__rate_interval]))", "{{le}}"),
            unit="percentunit",
            kind="heatmap",
        ),
        panel(
            "Bandwidth relative to an ideal fabric",
            "Modelled bandwidth of placed gangs.",
            ("sum by (le) (increase(railwright_gang_bandwidth_ratio_bucket[$__rate_interval]))", "{{le}}"),
            unit="percentunit",
            kind="heatmap",
        ),
        panel(
            "Waiting",
            "Gangs with unbound pods that a scheduler has asked about.",
            ("max(railwright_gangs_waiting)", "gangs"),
        ),
        panel(
            "Longest wait",
            "`railwright explain pod` shows the reason.",
            ("max(railwright_gang_longest_wait_seconds)", "seconds"),
            unit="s",
        ),
        panel(
            "Assumed pods",
            "By state. Expired ones were never bound.",
            ("sum by (state) (railwright_assumed_pods)", "{{state}}"),
            ("sum(increase(railwright_assumed_pods_expired_total[$__rate_interval]))", "expired"),
        ),
        row("Requests of schedulers"),
        panel(
            "Requests",
            "By path and outcome.",
            (
                "sum by (path, outcome) (rate(railwright_extender_requests_total[$__rate_interval]))",
                "{{path}} {{outcome}}",
            ),
            unit="reqps",
        ),
        panel(
            "Duration",
            "From the last byte of the request to the response. Schedulers wait for each.",
            *quantiles("railwright_extender_request_duration_seconds", "path"),
            unit="s",
        ),
        panel(
            "Nodes per request",
            "Median and 99th percentile, by verb.",
            *quantiles("railwright_extender_nodes", "verb"),
        ),
        panel(
            "Leader",
            "1 for the replica that answers schedulers.",
            ("railwright_leader", "{{pod}}"),
            ("increase(railwright_leader_transitions_total[$__rate_interval])", "{{pod}} changes"),
        ),
        panel(
            "Unknown nodes",
            "Nodes in requests that the cache does not contain. They score 0.",
            ("sum(rate(railwright_extender_unknown_nodes_total[$__rate_interval]))", "per second"),
        ),
        panel(
            "Rejected nodes",
            "Nodes that were filtered, by reason code (docs/interface.md 7.8).",
            ("sum by (code) (rate(railwright_extender_rejected_nodes_total[$__rate_interval]))", "{{code}}"),
        ),
        panel(
            "Events",
            "Kubernetes Events about gangs, by result.",
            ("sum by (outcome) (rate(railwright_extender_notices_total[$__rate_interval]))", "{{outcome}}"),
            unit="cps",
        ),
    ],
)

RAILS = 'railwright_rail_devices{{fabric=~"$fabric", state="{}"}}'

FABRICS = dashboard(
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

DASHBOARDS = {"admission": ADMISSION, "scheduling": SCHEDULING, "fabric": FABRICS}


def format_json(dashboard: Json) -> str:
    """Return the content of a dashboard's file."""
    return json.dumps(dashboard, indent=2) + "\n"


if __name__ == "__main__":
    for name, dashboard_json in DASHBOARDS.items():
        (FOLDER / f"{name}.json").write_text(format_json(dashboard_json))
