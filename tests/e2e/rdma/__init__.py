"""Makes this folder a package, so that its package fixtures, the virtual nodes, end with its last test."""
