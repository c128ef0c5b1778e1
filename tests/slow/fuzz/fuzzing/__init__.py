"""Feeds parsers of untrusted text with unlikely text. One target a file; a new file is a new target.

A target has `check(data)`, which may raise nothing but what it means as a finding, `seeds()`, `TOKENS` for the
mutations, and `EXECUTIONS`, how many mutated inputs a short run can afford.
"""
