"""Certificates for tests, made once for each process."""

import ssl
from functools import cache
from pathlib import Path

import trustme

from gateway.server.tls.certificates import TlsFiles


@cache
def authority() -> trustme.CA:
    """Return the CA that every client here trusts."""
    return trustme.CA()


@cache
def server_certificate(name: str = "localhost") -> trustme.LeafCert:
    return authority().issue_cert(name, "127.0.0.1")


def files_in(folder: Path, certificate: trustme.LeafCert | None = None, *, client_ca: bool = False) -> TlsFiles:
    """Write the files of a server and return them."""
    certificate = certificate or server_certificate()
    files = TlsFiles(
        certificate=folder / "server.pem",
        key=folder / "server.key",
        client_ca=folder / "clients.pem" if client_ca else None,
    )
    files.certificate.write_bytes(b"".join(blob.bytes() for blob in certificate.cert_chain_pems))
    assert files.key is not None
    files.key.write_bytes(certificate.private_key_pem.bytes())
    if files.client_ca is not None:
        files.client_ca.write_bytes(authority().cert_pem.bytes())
    return files


@cache
def server_context() -> ssl.SSLContext:
    """Return a context without tickets: a client that leaves tickets unread sends a reset and no FIN when it closes."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_certificate().configure_cert(context)
    context.num_tickets = 0
    return context


def client_context(*, certificate: trustme.LeafCert | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority().configure_trust(context)
    if certificate is not None:
        certificate.configure_cert(context)
    return context
