"""Writes the three Grafana dashboards beside this file: `python manifests/components/prometheus/dashboards/build.py`.

Owns what is shown and in which order; a panel is one call. Places panels from left to right, row by row, so that none
overlaps. A test says when the JSON is out of date.
"""

import json
import pathlib
from collections.abc import Sequence
from typing import Any

FOLDER = pathlib.Path(__file__).parent
SCHEMA = 39  # Grafana 10.4 and later read it and migrate it themselves
WIDTH = 24  # columns of a dashboard
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
Json = dict[str, Any]


def panel(  # noqa: PLR0913 - one argument a property, most by name
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
    """One panel. `queries` are (PromQL, legend); from `red` on it is shown red."""
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
    """One number."""
    return panel(title, text, (query, ""), unit=unit, kind="stat", width=4, height=4, red=red)


def row(title: str) -> Json:
    """A heading."""
    return {"type": "row", "title": title, "collapsed": False, "panels": [], "gridPos": {"w": WIDTH, "h": 1}}


def quantiles(metric: str, by: str, where: str = "") -> Sequence[tuple[str, str]]:
    """The median and the 99th of 100 of a histogram, by a label."""
    rate = f"sum by (le, {by}) (rate({metric}_bucket{where}[$__rate_interval]))"
    return [(f"histogram_quantile({share}, {rate})", f"p{share * 100:.0f} {{{{{by}}}}}") for share in (0.5, 0.99)]


def dashboard(name: str, title: str, text: str, panels: Sequence[Json], variables: Sequence[Json] = ()) -> Json:
    """A whole dashboard; `name` makes its uid, which links keep."""
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
        "panels": placed(panels),
    }


def placed(panels: Sequence[Json]) -> list[Json]:
    """The panels with their ids and places, from left to right."""
    x = y = tallest = 0
    found = []
    for number, each in enumerate(panels, 1):
        size = each["gridPos"]
        if x + size["w"] > WIDTH:
            x, y, tallest = 0, y + tallest, 0
        found.append({"id": number, **each, "gridPos": {"x": x, "y": y, **size}})
        x, tallest = x + size["w"], max(tallest, size["h"])
    return found


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
    "What the webhook did to pods and workloads, and how long it took.",
    [
        stat("Webhooks up", "Replicas that Prometheus reaches.", 'sum(up{job="railwright", component="webhook"})'),
        stat(
            "Uninjected pods",
            "Live pods that opted in and were not injected: they may train over TCP. Anything but 0 needs a look.",
            "sum(max by (fabric) (railwright_uninjected_pods))",
            red=1,
        ),
        stat("Policy valid", "1 while the newest policy is in force.", "min(railwright_policy_valid)"),
        stat(
            "Policies in force",
            "Different policies over all replicas; more than 1 for long is a skew.",
            "count(count by (digest) (railwright_policy_info == 1))",
            red=2,
        ),
        stat(
            "Certificate left",
            "Until the first serving certificate ends.",
            'min(railwright_certificate_seconds_left{component="webhook"} < +Inf)',
            unit="s",
        ),
        stat(
            "p99 of a review",
            "99 of 100 reviews of pods take no longer, in the webhook itself.",
            "histogram_quantile(0.99, sum by (le) "
            '(rate(railwright_webhook_request_duration_seconds_bucket{path="/mutate/pods"}[5m])))',
            unit="s",
            red=0.1,
        ),
        row("What was decided"),
        panel(
            "Pods that opted in",
            "By fabric and outcome: patched, allowed (nothing left to add) or refused.",
            (
                "sum by (fabric, outcome) (rate(railwright_webhook_injections_total[$__rate_interval]))",
                "{{fabric}} {{outcome}}",
            ),
            ("sum(rate(railwright_webhook_skipped_total[$__rate_interval]))", "did not opt in"),
            unit="reqps",
        ),
        panel(
            "Refusals",
            "By fabric and reason; the pod's owner has the sentence as an Event.",
            (
                "sum by (fabric, reason) (rate(railwright_webhook_refusals_total[$__rate_interval]))",
                "{{fabric}} {{reason}}",
            ),
            unit="reqps",
        ),
        panel(
            "Workloads",
            "Templates of jobs and the like, by kind and outcome.",
            (
                "sum by (kind, outcome) (rate(railwright_webhook_workloads_total[$__rate_interval]))",
                "{{kind}} {{outcome}}",
            ),
            unit="reqps",
        ),
        panel(
            "Operations of a patch",
            "A whole injection is 12 to 40 operations; 0 is a pod that has all already.",
            ("sum by (le) (increase(railwright_webhook_patch_operations_bucket[$__rate_interval]))", "{{le}}"),
            kind="heatmap",
        ),
        panel(
            "Warnings and Events",
            "Warnings in answers; Events by what became of them.",
            ("sum(rate(railwright_webhook_warnings_total[$__rate_interval]))", "warnings"),
            ("sum by (outcome) (rate(railwright_webhook_events_total[$__rate_interval]))", "Events {{outcome}}"),
            unit="cps",
        ),
        panel(
            "Uninjected pods by fabric",
            "Live pods that opted in and carry no record.",
            ("max by (fabric) (railwright_uninjected_pods)", "{{fabric}}"),
            red=1,
        ),
        row("How long it took"),
        panel(
            "Duration in the webhook",
            "From the last byte of the request to the answer.",
            *quantiles("railwright_webhook_request_duration_seconds", "path"),
            unit="s",
        ),
        panel(
            "Duration as the API server sees it",
            "With connection, TLS and network; its own metrics.",
            *quantiles(
                "apiserver_admission_webhook_admission_duration_seconds", "name", '{name=~".+[.]railwright[.]io"}'
            ),
            unit="s",
        ),
        panel(
            "Calls that failed",
            "As the API server counts them: errors of calling us, and objects let pass without us.",
            (
                (
                    "sum by (name) (rate(apiserver_admission_webhook_rejection_count"
                    '{name=~".+[.]railwright[.]io", error_type="calling_webhook_error"}[$__rate_interval]))'
                ),
                "refused {{name}}",
            ),
            (
                (
                    "sum by (name) (rate(apiserver_admission_webhook_fail_open_count"
                    '{name=~".+[.]railwright[.]io"}[$__rate_interval]))'
                ),
                "let pass {{name}}",
            ),
            unit="reqps",
        ),
        row("The servers"),
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
            "Turned away, and connections",
            "Requests refused before any handler saw them, by status; open connections.",
            ("sum by (code) (rate(railwright_http_rejected_total[$__rate_interval]))", "{{code}} a second"),
            ("sum by (pod) (railwright_connections)", "connections {{pod}}"),
        ),
        panel(
            "Event loop",
            "Worst delay of the last half minute: every answer may have waited as long.",
            ("max by (pod) (railwright_event_loop_lag_seconds)", "{{pod}}"),
            unit="s",
            red=0.5,
        ),
        panel(
            "Memory",
            "Resident, by pod; of one process.",
            ('process_resident_memory_bytes{job="railwright"}', "{{pod}}"),
            unit="bytes",
        ),
        panel(
            "CPU",
            "Cores, by pod.",
            ('rate(process_cpu_seconds_total{job="railwright"}[$__rate_interval])', "{{pod}}"),
            unit="short",
        ),
        panel(
            "Versions and policies",
            "Pods by what they run and follow.",
            ("count by (version, server) (railwright_build_info)", "{{server}} {{version}}"),
            ("count by (digest) (railwright_policy_info == 1)", "{{digest}}"),
        ),
    ],
)

SCHEDULING = dashboard(
    "scheduling",
    "Scheduling",
    "What schedulers asked the extender, how gangs were placed, and what still waits.",
    [
        stat("Leaders", "Extenders that answer schedulers; 1 is right.", "sum(railwright_leader)", red=2),
        stat("Gangs waiting", "Gangs asked about whose pods are not all bound.", "max(railwright_gangs_waiting)"),
        stat(
            "Longest wait",
            "Since the first question about the gang that waits longest.",
            "max(railwright_gang_longest_wait_seconds)",
            unit="s",
            red=3600,
        ),
        stat(
            "Placed as well as possible",
            "Share of the gangs of the last day that are compact.",
            'sum(increase(railwright_gangs_total{outcome="compact"}[1d])) / '
            'sum(increase(railwright_gangs_total{outcome=~"compact|spread|degraded"}[1d]))',
            unit="percentunit",
        ),
        stat(
            "Bandwidth attained",
            "Mean over the gangs of the last day: modelled bandwidth, of the best possible when planned.",
            "sum(increase(railwright_gang_attained_ratio_sum[1d])) / "
            "sum(increase(railwright_gang_attained_ratio_count[1d]))",
            unit="percentunit",
        ),
        stat(
            "Ledger",
            "Allocations announced and not yet seen bound.",
            "sum(railwright_ledger_entries)",
        ),
        row("Gangs"),
        panel(
            "Gangs by outcome",
            "compact: as well as possible; spread: over more leaves; degraded: less bandwidth; unplaceable: no room.",
            ("sum by (outcome) (increase(railwright_gangs_total[$__rate_interval]))", "{{outcome}}"),
            stacked=True,
        ),
        panel(
            "Attained, of the best possible",
            "Modelled bandwidth of placed gangs, of what had been possible when they were planned.",
            ("sum by (le) (increase(railwright_gang_attained_ratio_bucket[$__rate_interval]))", "{{le}}"),
            unit="percentunit",
            kind="heatmap",
        ),
        panel(
            "Bandwidth, of an ideal fabric",
            "Modelled bandwidth of placed gangs: what the jobs get.",
            ("sum by (le) (increase(railwright_gang_bandwidth_ratio_bucket[$__rate_interval]))", "{{le}}"),
            unit="percentunit",
            kind="heatmap",
        ),
        panel(
            "Waiting",
            "Gangs asked about whose pods are not all bound.",
            ("max(railwright_gangs_waiting)", "gangs"),
        ),
        panel(
            "Longest wait",
            "`railwright explain pod` says why.",
            ("max(railwright_gang_longest_wait_seconds)", "seconds"),
            unit="s",
        ),
        panel(
            "Ledger",
            "Entries by state; expired ones were never confirmed.",
            ("sum by (state) (railwright_ledger_entries)", "{{state}}"),
            ("sum(increase(railwright_ledger_expired_total[$__rate_interval]))", "expired"),
        ),
        row("Calls of schedulers"),
        panel(
            "Calls",
            "By path and outcome.",
            (
                "sum by (path, outcome) (rate(railwright_extender_requests_total[$__rate_interval]))",
                "{{path}} {{outcome}}",
            ),
            unit="reqps",
        ),
        panel(
            "Duration",
            "From the last byte of the request to the answer; schedulers wait for each.",
            *quantiles("railwright_extender_request_duration_seconds", "path"),
            unit="s",
        ),
        panel(
            "Nodes of a call",
            "Median and 99th of 100, by verb.",
            *quantiles("railwright_extender_nodes", "verb"),
        ),
        panel(
            "Leader",
            "1 for the replica that answers.",
            ("railwright_leader", "{{pod}}"),
            ("increase(railwright_leader_transitions_total[$__rate_interval])", "{{pod}} changes"),
        ),
        panel(
            "Unknown nodes",
            "Nodes offered that the cache has not seen; they score 0.",
            ("sum(rate(railwright_extender_unknown_nodes_total[$__rate_interval]))", "a second"),
        ),
        panel(
            "Events",
            "Kubernetes Events about gangs, by what became of them.",
            ("sum by (outcome) (rate(railwright_extender_notices_total[$__rate_interval]))", "{{outcome}}"),
            unit="cps",
        ),
    ],
)

RAILS = 'railwright_rail_devices{{fabric=~"$fabric", state="{}"}}'

FABRICS = dashboard(
    "fabric",
    "Fabric",
    "The devices of every rail, what the servers know of the cluster, and how fresh it is.",
    [
        *(
            stat(
                f"{state.capitalize()} devices",
                text,
                f"sum(max by (fabric, rail) ({RAILS.format(state)}))",
                red=1 if state == "dead" else None,
            )
            for state, text in (
                ("free", "Devices that a pod could have now."),
                ("busy", "Devices of bound pods."),
                ("dead", "On their node (capacity) and no longer offered (allocatable)."),
                ("unschedulable", "Not busy, on a node that is cordoned or not Ready."),
            )
        ),
        stat(
            "Nodes without a domain",
            "Nobody knows their leaf; they are placed on last.",
            "sum(max by (domain) (railwright_nodes_without_domain))",
            red=1,
        ),
        stat("Nodes", "In the extender's cache.", 'max(railwright_cache_objects{kind="nodes"})'),
        row("Rails"),
        *(
            panel(
                f"{state.capitalize()}",
                text,
                (f"max by (fabric, rail) ({RAILS.format(state)})", "{{fabric}} {{rail}}"),
                width=12,
                stacked=state != "dead",
            )
            for state, text in (
                ("free", "By rail. Rails that differ are uneven: some pods take fewer rails than there are."),
                ("busy", "By rail."),
                ("dead", "By rail: find the nodes as the runbook says under RailwrightRailsDead."),
                ("unschedulable", "By rail: well, not busy, and on a node that takes no pods."),
            )
        ),
        panel(
            "In use",
            "Busy devices, of those that are well.",
            (
                (
                    f"sum by (fabric) (max by (fabric, rail) ({RAILS.format('busy')})) / sum by (fabric) "
                    '(max by (fabric, rail, state) (railwright_rail_devices{fabric=~"$fabric", state!="dead"}))'
                ),
                "{{fabric}}",
            ),
            unit="percentunit",
        ),
        panel(
            "Overcommitted",
            "Devices that bound pods hold and nodes do not offer: a NIC died under its pod, or was given twice.",
            (
                'max by (fabric, rail) (railwright_overcommitted_devices{fabric=~"$fabric"})',
                "{{fabric}} {{rail}}",
            ),
            red=1,
        ),
        panel(
            "Nodes without a domain",
            "By domain key of the policy.",
            ("max by (domain) (railwright_nodes_without_domain)", "{{domain}}"),
        ),
        row("What the servers know"),
        panel(
            "Age of caches",
            "Since the API server was last heard of; a sign of life comes each minute.",
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
            "Watches begun anew",
            "By kind and reason; and objects left out because they could not be read.",
            (
                "sum by (kind, reason) (increase(railwright_watch_restarts_total[$__rate_interval]))",
                "{{kind}} {{reason}}",
            ),
            (
                "sum by (kind) (increase(railwright_watch_skipped_total[$__rate_interval]))",
                "{{kind}} left out",
            ),
        ),
        panel(
            "Certificates",
            "Until each serving certificate ends.",
            ("min by (pod) (railwright_certificate_seconds_left < +Inf)", "{{pod}}"),
            unit="s",
        ),
        panel(
            "Policy",
            "Good reads since the start, and whether the newest is in force.",
            ("max by (component) (railwright_policy_generation)", "reads {{component}}"),
            ("min by (component) (railwright_policy_valid)", "valid {{component}}"),
        ),
        panel(
            "Event loops",
            "Worst delay of the last half minute.",
            ("max by (component, pod) (railwright_event_loop_lag_seconds)", "{{pod}}"),
            unit="s",
            red=0.5,
        ),
    ],
    [FABRIC],
)

DASHBOARDS = {"admission": ADMISSION, "scheduling": SCHEDULING, "fabric": FABRICS}


def text(dashboard: Json) -> str:
    """A dashboard as its file holds it."""
    return json.dumps(dashboard, indent=2) + "\n"


if __name__ == "__main__":
    for name, made in DASHBOARDS.items():
        (FOLDER / f"{name}.json").write_text(text(made))
