"""Makes this folder a package, so that its package-scoped fixture, the virtual nodes, ends with its last test."""
