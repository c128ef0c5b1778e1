"""The dashboard of the webhook: the panels and their order."""

from panels import dashboard, panel, quantiles, row, stat

DASHBOARD = dashboard(
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
