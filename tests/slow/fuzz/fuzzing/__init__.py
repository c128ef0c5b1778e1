"""Feeds parsers of untrusted text with unlikely text. One target a file; a new file is a new target.

A target has `check(data)`, which raises only for a finding, `seeds()`, `TOKENS` for the mutations, and `EXECUTIONS`,
the number of mutated inputs in a short run.
"""
