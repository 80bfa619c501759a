"""Settings of who reaches the server, and where."""

from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from gateway.settings.engine import EngineSettings
from gateway.settings.values import addresses, api_keys, expanded, hash_key, origins, paths
from gateway.storage.place import check_place


class NetworkSettings(EngineSettings):
    """Settings of who reaches the server, and where."""

    host: Annotated[str, AfterValidator(addresses)] = Field(
        "127.0.0.1", min_length=1, title="ADDRESS", description="address to listen on, or several behind commas"
    )
    port: int = Field(8000, ge=0, le=65535, title="PORT", description="port to listen on; 0 takes a free port")
    unix_socket: Annotated[Path, AfterValidator(expanded)] | None = Field(
        None,
        title="PATH",
        description="Unix socket to listen on, instead of a port, or besides it if --host or --port is given",
    )
    tls_certificate: Annotated[Path, AfterValidator(expanded)] | None = Field(
        None, title="FILE", description="certificate of the server in PEM format, with its chain; default: no TLS"
    )
    tls_key: Annotated[Path, AfterValidator(expanded)] | None = Field(
        None, title="FILE", description="private key in PEM format, not encrypted; default: in the certificate's file"
    )
    tls_client_ca: Annotated[Path, AfterValidator(expanded)] | None = Field(
        None, title="FILE", description="CA in PEM format that must have signed the certificates of clients"
    )
    metrics_port: int | None = Field(
        None,
        ge=0,
        le=65535,
        title="PORT",
        description="port of its own for /metrics, which --port then does not answer; 0 takes a free port; "
        "default: /metrics is on --port",
    )
    metrics_host: str | None = Field(
        None, min_length=1, title="ADDRESS", description="address of --metrics-port; default: same as --host"
    )
    allow_origin: Annotated[tuple[str, ...], BeforeValidator(origins)] = Field(
        (),
        title="ORIGIN",
        description="web origin whose pages may call the server, such as https://example.org; localhost "
        "allows all of this machine, * allows all; repeatable, or separated by commas; default: no origin",
    )

    # `repr=False` marks a secret: no message shows the value.
    prefix_secret: Annotated[str, Field(min_length=16), AfterValidator(hash_key)] | None = Field(
        None,
        repr=False,
        title="SECRET",
        description="report which prompts are cached at /prefixes, for routers in front of several servers that have "
        "the same secret, of 16 to 64 bytes; it is on --metrics-port, if there is one; default: no reports",
    )
    api_key: Annotated[tuple[str, ...], BeforeValidator(api_keys)] = Field(
        (),
        repr=False,
        title="KEY",
        description="API key without limits that requests may have; repeatable, or separated by commas; also the "
        "variable LLAMA_API_KEY; default: no key is needed, unless --keys is set",
    )
    keys: Annotated[str, Field(min_length=1), AfterValidator(check_place)] | None = Field(
        None,
        repr=False,
        title="STORE",
        description="store of API keys with limits, which `llama-gateway keys` fills: an SQLite file, or the URL of a "
        "PostgreSQL database; default: no store",
    )
    open_path: Annotated[tuple[str, ...], BeforeValidator(paths)] = Field(
        (),
        title="PATH",
        description="path that needs no API key, such as /metrics; repeatable, or separated by commas; default: only "
        "/health, /v1/health, /livez, /readyz and /ping",
    )

    @model_validator(mode="after")
    def _metrics_have_a_port(self) -> Self:
        if self.metrics_host is not None and self.metrics_port is None:
            raise ValueError("--metrics-host needs --metrics-port: without it, /metrics is on --port")
        return self

    @property
    def listens_on_port(self) -> bool:
        """True if the server listens on `host` and `port`: without a Unix socket, or if one of the two is given."""
        return self.unix_socket is None or not self.model_fields_set.isdisjoint({"host", "port"})
