"""The hub over HTTP, by huggingface_hub: its endpoint, token, redirects and errors."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import httpx2
from huggingface_hub import HfApi, ModelInfo, constants, hf_hub_url
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
)
from huggingface_hub.utils import build_hf_headers, get_session, hf_raise_for_status

from gateway.hub.errors import MISSING, HubError

_LISTING_TIMEOUT = 10.0
_COMMIT = re.compile("[0-9a-f]{40}")
_DIGEST = re.compile("[0-9a-f]{40}|[0-9a-f]{64}")
_READ_TIMEOUT = 30.0
"""Seconds without a byte, after which a connection is given up and the download resumed on another."""
TRANSIENT = frozenset({408, 429, 500, 502, 503, 504})
"""Statuses after which the same request may succeed."""


class TransientError(HubError):
    """The hub cannot be reached, or is out of order. The same request may succeed later."""


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file of a repository."""

    name: str
    """Path in the repository."""
    size: int
    """Size in bytes."""
    digest: str
    """SHA-256 of a file in the large file storage; of others their id in git."""


@dataclass(frozen=True, slots=True)
class Listing:
    """The latest commit of a repository."""

    commit: str
    """Id of the commit."""
    files: Mapping[str, RemoteFile]
    """All files by their names."""


class HubClient:
    """Requests to the hub, with the token of the environment or of `hf auth login`."""

    def __init__(self, endpoint: str | None = None) -> None:
        """Use an endpoint; None takes that of `HF_ENDPOINT`, or else the public one."""
        self._endpoint = endpoint or constants.ENDPOINT

    def listing(self, repository: str) -> Listing:
        """Return the files of a repository.

        Raises:
            HubError: There is no such repository, it is not accessible, or the answer is not that of a hub.
            TransientError: The hub cannot be reached.
        """
        with self._explained(repository):
            try:
                info = HfApi(self._endpoint).model_info(repository, files_metadata=True, timeout=_LISTING_TIMEOUT)
                return _sound_listing(info)
            except HFValidationError:  # a ValueError, too
                raise
            except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
                raise HubError(f"{self._endpoint} does not speak the hub's protocol: check HF_ENDPOINT") from error

    @contextmanager
    def open(self, repository: str, commit: str, name: str, start: int) -> Iterator[httpx2.Response]:
        """Request a file from byte `start` on. Yields the response, whose status is 200 (all of it) or 206.

        Raises:
            HubError: The file is not accessible.
            TransientError: The hub cannot be reached, or the connection was cut, also inside the context.
        """
        url = hf_hub_url(repository, name, revision=commit, endpoint=self._endpoint)
        headers = build_hf_headers(headers={"Accept-Encoding": "identity"})
        if start:
            headers["Range"] = f"bytes={start}-"
        with (
            self._explained(repository),
            get_session().stream("GET", url, headers=headers, timeout=_READ_TIMEOUT) as reply,
        ):
            hf_raise_for_status(reply)
            yield reply

    @contextmanager
    def _explained(self, repository: str) -> Iterator[None]:
        """Raise every failure as an error that says what to do."""
        try:
            yield
        except GatedRepoError as error:
            url = f"{self._endpoint}/{repository}"
            raise HubError(f"{repository} is gated: accept its terms at {url}, and set HF_TOKEN") from error
        except RepositoryNotFoundError as error:
            raise HubError(
                f"{repository} does not exist or is private: check the name, or set HF_TOKEN to a token with access",
                code=MISSING,
            ) from error
        except HfHubHTTPError as error:
            raise self._http_error(error.response.status_code, repository) from error
        except HFValidationError as error:
            raise HubError(f"{repository} is not a name of a repository") from error
        except OfflineModeIsEnabled as error:
            raise TransientError("the hub is not asked: HF_HUB_OFFLINE is set") from error
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise TransientError(f"no connection to {self._endpoint}: {str(error) or type(error).__name__}") from error

    def _http_error(self, status: int, repository: str) -> HubError:
        if status in TRANSIENT:
            return TransientError(f"{self._endpoint} is out of order: it answered with status {status}")
        if status == 401:  # noqa: PLR2004 - the usual number
            return HubError(f"{self._endpoint} does not accept the token: check HF_TOKEN")
        if status == 403:  # noqa: PLR2004 - the usual number
            return HubError(f"the token has no access to {repository}: check its permissions, or HF_TOKEN")
        return HubError(f"{self._endpoint} refused {repository} with status {status}")


def _sound_listing(info: ModelInfo) -> Listing:
    """Return the files in an answer of the hub.

    Raises:
        ValueError: A commit, name, size or digest is none. They become paths, which must stay in their folder.
        TypeError: One of them has another type.
    """
    files = [
        RemoteFile(file.rfilename, file.size, file.lfs.sha256 if file.lfs else file.blob_id)
        for file in info.siblings or ()
        if file.size is not None and file.blob_id is not None
    ]
    if info.sha is None or not _COMMIT.fullmatch(info.sha) or not all(map(_is_sound, files)):
        raise ValueError("not a listing of the hub")
    return Listing(info.sha, {file.name: file for file in files})


def _is_sound(file: RemoteFile) -> bool:
    inside = file.name.isprintable() and not {"", ".", ".."}.intersection(file.name.split("/"))
    return inside and file.size >= 0 and _DIGEST.fullmatch(file.digest) is not None
