"""Verification of a cluster's certificates: as in kubectl and client-go, on every Python version.

Since Python 3.13 `ssl.create_default_context` also requires the key identifiers and critical marks of RFC 5280 in
every certificate of the chain (VERIFY_X509_STRICT). The CAs of many clusters lack them (EKS, for one), and no Go
client requires them. The checks that identify the server are unchanged: the issuer's signature, the issuer's right to
issue, the host name, the dates, and the usage as a server.
"""

import ssl


def build_client_context(ca_file: str | None = None, ca_text: str | None = None) -> ssl.SSLContext:
    """Return a context that trusts the CAs in a file or PEM text, or else the system's.

    Raises OSError and ssl.SSLError.
    """
    context = ssl.create_default_context(cafile=ca_file, cadata=ca_text)
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context
