"""Certificates: which files are of use, and when they are read again."""

import errno
import os
import ssl
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
import trustme
from cryptography.hazmat.primitives import serialization

from gateway.server.tls.certificates import Certificates, TlsError, TlsFiles, open_certificates
from tests.gateway.server.apps import Probe, hello, scoped
from tests.gateway.server.sockets import Site, get, serving
from tests.gateway.server.tls.certificates import authority, client_context, files_in, server_certificate
from tests.gateway.server.tls.clients import TlsClient
from tests.threads import refuse_in_thread

pytestmark = pytest.mark.anyio


def encrypted(key: bytes) -> bytes:
    loaded = serialization.load_pem_private_key(key, None)
    encryption = serialization.BestAvailableEncryption(b"secret")
    return loaded.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)


def other_key() -> bytes:
    return authority().issue_cert("other.example").private_key_pem.bytes()


def damaged(pem: bytes) -> bytes:
    first, _, rest = pem.partition(b"\n")
    return first + b"\n!!" + rest


CERTIFICATE = b"".join(blob.bytes() for blob in server_certificate().cert_chain_pems)
KEY = server_certificate().private_key_pem.bytes()
PEM = "in this file, in PEM format"
WRONG = {
    "no certificate file": (None, KEY, "--tls-certificate '{certificate}': No such file or directory"),
    "no key file": (CERTIFICATE, None, "--tls-key '{key}': No such file or directory"),
    "an empty certificate": (b"", KEY, f"--tls-certificate '{{certificate}}': there is no certificate {PEM}"),
    "files swapped": (KEY, CERTIFICATE, f"--tls-certificate '{{certificate}}': there is no certificate {PEM}"),
    "no key in the file": (CERTIFICATE, b"\xff\xfe", f"--tls-key '{{key}}': there is no private key {PEM}"),
    "another key": (CERTIFICATE, other_key(), "--tls-certificate '{certificate}', key '{key}': the private key does "),
    "an encrypted key": (CERTIFICATE, encrypted(KEY), "--tls-key '{key}': the private key is encrypted"),
    "a damaged certificate": (damaged(CERTIFICATE), KEY, "--tls-certificate '{certificate}', key '{key}': OpenSSL can"),
    "a damaged key": (CERTIFICATE, damaged(KEY), "--tls-certificate '{certificate}', key '{key}': OpenSSL cannot "),
}


@pytest.mark.parametrize("case", WRONG)
def test_files_of_no_use_are_refused_in_one_line_that_names_the_flag(case: str, tmp_path: Path) -> None:
    certificate, key, complaint = WRONG[case]
    files = files_in(tmp_path)
    assert files.key is not None
    for path, content in ((files.certificate, certificate), (files.key, key)):
        path.write_bytes(content) if content is not None else path.unlink()
    with pytest.raises(TlsError) as caught:
        Certificates(files)
    assert str(caught.value).startswith(complaint.format(certificate=files.certificate, key=files.key))
    assert "\n" not in str(caught.value)


def test_a_device_in_the_place_of_a_file_is_refused() -> None:
    files = TlsFiles(certificate=Path(os.devnull))
    with pytest.raises(TlsError, match=f"^--tls-certificate '{os.devnull}': not a regular file$"):
        Certificates(files)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "No such file"),
        (b"x", "there is no certificate"),
        (damaged(authority().cert_pem.bytes()), "OpenSSL cannot use it"),
    ],
)
def test_a_client_ca_of_no_use_is_refused(content: bytes | None, reason: str, tmp_path: Path) -> None:
    files = files_in(tmp_path, client_ca=True)
    assert files.client_ca is not None
    files.client_ca.write_bytes(content) if content is not None else files.client_ca.unlink()
    with pytest.raises(TlsError, match=f"^--tls-client-ca '{files.client_ca}'.*: {reason}"):
        Certificates(files)


def test_the_key_may_be_in_the_file_of_the_certificate(tmp_path: Path) -> None:
    path = tmp_path / "both.pem"
    path.write_bytes(CERTIFICATE + KEY)
    certificates = open_certificates(path, None, None)
    assert certificates is not None
    context = certificates.current()
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    assert context.verify_mode == ssl.CERT_NONE


def test_without_a_certificate_there_is_no_tls_and_no_flag_for_it() -> None:
    assert open_certificates(None, None, None) is None
    with pytest.raises(TlsError, match=r"^--tls-key 'a\.key': needs --tls-certificate$"):
        open_certificates(None, Path("a.key"), None)
    with pytest.raises(TlsError, match=r"^--tls-client-ca 'ca\.pem': needs --tls-certificate$"):
        open_certificates(None, None, Path("ca.pem"))


async def client_of(site: Site, context: ssl.SSLContext, name: str = "localhost") -> TlsClient:
    client = TlsClient(site.port, context=context, name=name)
    site.clients.append(client)
    await client.handshake()
    return client


async def test_only_clients_with_a_certificate_of_the_client_ca_are_served(tmp_path: Path) -> None:
    certificates = Certificates(files_in(tmp_path, client_ca=True))
    known = authority().issue_cert("client@example.org")
    stranger = trustme.CA().issue_cert("client@example.org")
    async with serving(scoped(hello), tls=certificates.current) as site:
        client = await client_of(site, client_context(certificate=known))
        client.write(get())
        assert (await client.answer()).status == 200
        for certificate in (None, stranger):
            refused = await client_of(site, client_context(certificate=certificate))
            with pytest.raises(ssl.SSLError, match="alert"):
                await refused.receive()


async def test_only_http_1_1_is_agreed_on(tmp_path: Path) -> None:
    certificates = Certificates(files_in(tmp_path))
    context = client_context()
    context.set_alpn_protocols(["h2", "http/1.1"])
    async with serving(scoped(hello), tls=certificates.current) as site:
        client = await client_of(site, context)
        assert client.tls.selected_alpn_protocol() == "http/1.1"


def replace(files: TlsFiles, certificate: trustme.LeafCert) -> None:
    """Put new files in the place of the old ones, as the usual tools do."""
    folder = files.certificate.parent / "new"
    folder.mkdir()
    new = files_in(folder, certificate)
    assert files.key is not None
    assert new.key is not None
    new.certificate.replace(files.certificate)
    new.key.replace(files.key)
    folder.rmdir()


async def polled(certificates: Certificates) -> None:
    """Poll until changes have settled."""
    for _ in range(2):
        await certificates.poll()


async def test_new_connections_use_a_new_certificate_and_old_ones_go_on(tmp_path: Path) -> None:
    files = files_in(tmp_path)
    certificates = Certificates(files)
    probe = Probe(stream=True)
    async with serving(scoped(probe), tls=certificates.current) as site:
        old = await client_of(site, client_context())
        old.write(get())
        replace(files, authority().issue_cert("new.example"))
        await polled(certificates)
        await client_of(site, client_context(), name="new.example")
        await old.read_until(b"begun")
        with pytest.raises(ssl.SSLCertVerificationError):
            await client_of(site, client_context())


async def test_unchanged_files_are_not_read_again(tmp_path: Path) -> None:
    certificates = Certificates(files_in(tmp_path))
    before = certificates.current()
    await polled(certificates)
    assert certificates.current() is before


async def test_files_are_read_again_once_both_are_new(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    files = files_in(tmp_path)
    certificates = Certificates(files)
    new = authority().issue_cert("new.example")
    before = certificates.current()
    files.certificate.write_bytes(new.cert_chain_pems[0].bytes())
    await certificates.poll()
    assert files.key is not None
    files.key.write_bytes(new.private_key_pem.bytes())
    os.utime(files.key, ns=(1, 1))  # another time on a coarse clock, too
    await certificates.poll()
    assert certificates.current() is before
    await certificates.poll()
    assert certificates.current() is not before
    assert not caplog.records


@pytest.mark.parametrize("broken", ["removed", "damaged"])
async def test_broken_files_are_logged_once_and_change_nothing(
    broken: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = files_in(tmp_path)
    certificates = Certificates(files)
    before = certificates.current()
    files.certificate.unlink() if broken == "removed" else files.certificate.write_bytes(b"damaged")
    for _ in range(3):
        await polled(certificates)
    assert certificates.current() is before
    (record,) = caplog.records
    assert (record.levelname, record.exc_info) == ("ERROR", None)
    assert record.getMessage().startswith("the certificate stays as it was: --tls-certificate ")
    files_in(tmp_path)
    await polled(certificates)
    assert certificates.current() is not before


async def test_a_lack_of_threads_is_logged_once_and_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificates = Certificates(files_in(tmp_path))
    before = certificates.current()
    with monkeypatch.context() as full:
        full.setattr(anyio.to_thread, "run_sync", refuse_in_thread)
        await polled(certificates)
        await polled(certificates)
    assert certificates.current() is before
    (record,) = caplog.records
    assert record.getMessage() == "the certificate stays as it was: can't start new thread"


async def test_a_file_that_could_not_be_read_is_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, **_: object) -> str:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    files = files_in(tmp_path)
    certificates = Certificates(files)
    before = certificates.current()
    replace(files, authority().issue_cert("new.example"))
    with monkeypatch.context() as root:
        root.setattr(Path, "read_text", refuse)
        await polled(certificates)
        await polled(certificates)
    assert certificates.current() is before
    await polled(certificates)
    assert certificates.current() is not before
    assert [record.levelname for record in caplog.records] == ["ERROR"]


async def test_a_reload_that_fails_keeps_the_context(tmp_path: Path) -> None:
    files = files_in(tmp_path)
    certificates = Certificates(files)
    before = certificates.current()
    files.certificate.write_bytes(b"damaged")
    with pytest.raises(TlsError):
        await certificates.reload()
    assert certificates.current() is before


async def test_the_files_are_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.server.tls.certificates.POLL", 0.001)
    files = files_in(tmp_path)
    certificates = Certificates(files)
    before = certificates.current()
    replace(files, authority().issue_cert("new.example"))
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(certificates.watch)
            while certificates.current() is before:
                await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()


@pytest.mark.parametrize("gone", ["certificate", "key", "client_ca"])
async def test_a_file_that_goes_while_it_is_read_is_logged_and_changes_nothing(
    gone: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = files_in(tmp_path, client_ca=True)
    certificates = Certificates(files)
    before, path = certificates.current(), getattr(files, gone)
    read = Path.read_text

    def read_and_lose(self: Path, encoding: str) -> str:
        text = read(self, encoding)
        if self == path:
            self.unlink()
        return text

    monkeypatch.setattr(Path, "read_text", read_and_lose)
    os.utime(path, ns=(1, 1))
    await polled(certificates)
    assert certificates.current() is before
    (record,) = caplog.records
    assert record.getMessage().startswith("the certificate stays as it was: --tls-")
    assert record.getMessage().endswith("No such file or directory")
