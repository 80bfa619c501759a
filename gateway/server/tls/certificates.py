"""Certificate, key and client CA from files, which are read again when they change."""

import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, TypeVar

import anyio
from anyio import to_thread

from engine.regular_files import require_regular

logger = logging.getLogger(__name__)

T = TypeVar("T")

POLL = 5.0
"""Seconds between two looks at the files."""

Stamp = tuple[tuple[int, int, int] | None, ...]
"""Inode, time of change and size of each file; None for a file that is missing."""


class TlsError(Exception):
    """A file cannot be used. The text is one line for the operator that names the flag."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """Files in PEM format."""

    certificate: Path
    """Certificate of the server, followed by the certificates up to the root."""
    key: Path | None = None
    """Private key; unset if it is in the file of the certificate."""
    client_ca: Path | None = None
    """Certificates, of which one must have signed a client's certificate; unset if clients need no certificate."""

    def stamp(self) -> Stamp:
        """Return a value that differs once a file has changed."""
        return tuple(_stamp(path) for path in (self.certificate, self.key, self.client_ca) if path is not None)

    def context(self) -> ssl.SSLContext:
        """Return a context with what the files contain now: TLS 1.2 or later, HTTP/1.1 only.

        Raises:
            TlsError: A file is missing, or its content is of no use.
        """
        key, key_flag = (self.key, "--tls-key") if self.key else (self.certificate, "--tls-certificate")
        _check(self.certificate, "--tls-certificate", "CERTIFICATE-----", "certificate")
        _check(key, key_flag, "PRIVATE KEY-----", "private key")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION  # a client could otherwise ask for endless signatures
        context.set_alpn_protocols(["http/1.1"])
        try:
            context.load_cert_chain(self.certificate, key, password=_refuse_password)
        except EncryptedKeyError as error:
            raise TlsError(f"{key_flag} {str(key)!r}: the private key is encrypted") from error
        except OSError as error:
            reason = _reason(error)
            raise TlsError(f"--tls-certificate {str(self.certificate)!r}, key {str(key)!r}: {reason}") from error
        if self.client_ca is not None:
            _require_clients(context, self.client_ca)
        return context


class Certificates:
    """The current context for new connections. Open connections keep the one with which they began."""

    def __init__(self, files: TlsFiles) -> None:
        """Read the files.

        Raises:
            TlsError: A file is missing, or its content is of no use.
        """
        self._files = files
        self._read = self._seen = files.stamp()
        self._context = files.context()
        self._failure = ""
        self._reloading = anyio.Lock()

    def current(self) -> ssl.SSLContext:
        """Return the context for a new connection."""
        return self._context

    async def watch(self) -> None:
        """Read the files again whenever they have changed, until cancelled."""
        while True:
            await anyio.sleep(POLL)
            await self.poll()

    async def poll(self) -> None:
        """Read the files again if they have changed, and have been as they are since the last call.

        So the certificate and the key of a new pair are read together. If the new files are of no use, the context
        stays, and the reason is logged once. They are tried again: permissions may let them be read later.
        """
        try:
            stamp = await _in_thread(self._files.stamp)
            settled, self._seen = stamp == self._seen, stamp
            if settled and stamp != self._read:
                await self.reload()
        except TlsError as error:
            if str(error) != self._failure:
                logger.error("the certificate stays as it was: %s", error)  # noqa: TRY400 - it is a file's fault
            self._failure = str(error)

    async def reload(self) -> None:
        """Read the files again.

        Raises:
            TlsError: A file is missing, or its content is of no use. The context stays.
        """
        async with self._reloading:
            stamp = await _in_thread(self._files.stamp)
            self._context = await _in_thread(self._files.context)
            self._read, self._failure = stamp, ""
        logger.info("the certificate was read again")


async def _in_thread(read: Callable[[], T]) -> T:
    """Read files in a thread.

    Raises:
        TlsError: There is no thread, or `read` raised it.
    """
    try:
        return await to_thread.run_sync(read)
    except RuntimeError as error:
        raise TlsError(str(error)) from error


def open_certificates(certificate: Path | None, key: Path | None, client_ca: Path | None) -> Certificates | None:
    """Return the certificates from the flags of the same names, or None without `--tls-certificate`.

    Raises:
        TlsError: A file is missing, its content is of no use, or a flag lacks `--tls-certificate`.
    """
    if certificate is not None:
        return Certificates(TlsFiles(certificate=certificate, key=key, client_ca=client_ca))
    for flag, path in (("--tls-key", key), ("--tls-client-ca", client_ca)):
        if path is not None:
            raise TlsError(f"{flag} {str(path)!r}: needs --tls-certificate")
    return None


class EncryptedKeyError(Exception):
    """The private key needs a password."""


def _refuse_password() -> NoReturn:
    """Replace OpenSSL's question on the terminal."""
    raise EncryptedKeyError


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def _check(path: Path, flag: str, mark: str, content: str) -> None:
    """Check that a file can be read and has a part of the kind that `mark` begins. OpenSSL does not name the file."""
    try:
        require_regular(path)
        text = path.read_text(encoding="latin-1")
    except OSError as error:
        raise TlsError(f"{flag} {str(path)!r}: {error.strerror}") from error
    if mark not in text:
        raise TlsError(f"{flag} {str(path)!r}: there is no {content} in this file, in PEM format")


def _require_clients(context: ssl.SSLContext, client_ca: Path) -> None:
    _check(client_ca, "--tls-client-ca", "CERTIFICATE-----", "certificate")
    try:
        context.load_verify_locations(client_ca)
    except OSError as error:
        raise TlsError(f"--tls-client-ca {str(client_ca)!r}: {_reason(error)}") from error
    context.verify_mode = ssl.CERT_REQUIRED


def _reason(error: OSError) -> str:
    if not isinstance(error, ssl.SSLError):
        return str(error.strerror)  # the file was removed after its check
    if error.reason == "KEY_VALUES_MISMATCH":
        return "the private key does not belong to the certificate"
    return f"OpenSSL cannot use it ({error.reason or error.args[-1]})"
