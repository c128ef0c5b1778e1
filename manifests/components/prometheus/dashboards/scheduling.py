"""The dashboard of the extender: the panels and their order."""

from panels import dashboard, panel, quantiles, row, stat

DASHBOARD = dashboard(
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
            ("sum(railwright_assumed_pods_unseen)", "not shown by the API server"),
        ),
        panel(
            "CEL expressions that are not understood",
            "unknown: railwright cannot evaluate them; fails: Kubernetes cannot either. Their devices refuse no node.",
            ("max by (state) (railwright_unknown_selectors)", "{{state}}"),
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
