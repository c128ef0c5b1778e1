"""Makes this folder a package, so that fixtures of its scope end with its last test: the virtual nodes leave then."""
