"""How a client of a cluster verifies certificates: as kubectl and client-go do, on every interpreter.

From Python 3.13 `ssl.create_default_context` also asks for the key identifiers and critical marks of RFC 5280 in every
certificate of the chain (VERIFY_X509_STRICT). The authorities of many clusters lack them (EKS, for one), and no Go
client asks. What decides whether the server is the right one is unchanged: the issuer's signature, that the issuer may
issue, the host's name, the dates, and that the certificate is for a server.
"""

import ssl


def client_context(ca_file: str | None) -> ssl.SSLContext:
    """A context that trusts the authorities of this file, or the system's. Raises OSError and ssl.SSLError."""
    context = ssl.create_default_context(cafile=ca_file)
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context
