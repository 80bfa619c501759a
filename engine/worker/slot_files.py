"""Files of saved slots: a mark with the version, a digest of what follows, the tokens with their number, and the cells.

llama.cpp ends the process at cells of other models and at some that were changed. So the key of the digest is the
fingerprint of the model and its settings, and llama.cpp gets no cells of a file whose digest is wrong.
"""

import errno
import hashlib
import os
import re
import struct
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from engine.core.partition import partition_hash
from engine.errors import EngineError, EngineFault, RequestError
from engine.protocol.fault import Fault
from engine.protocol.messages import Answered, FromEngine, KeepSlot, QueryFailed, SlotKept
from engine.regular_files import require_regular
from engine.request import SlotAction
from engine.worker.loop import StepLoop
from engine.worker.slot_states import SlotState, SlotStates

_MARK = b"llama-gateway slot 1\n"
_DIGEST = 32
_COUNT = struct.Struct("=I")

_WRONG_NAMES = {errno.ENOENT, errno.EISDIR, errno.ENAMETOOLONG, errno.EINVAL}
"""Errors that another file name would not have. The others, such as a full disk, are failures of the server."""

_PART = re.compile(r"\.[0-9a-f]{32}\.part")
"""Names of files that are not complete yet."""
_ABANDONED = 3600.0
"""Seconds after which such a file is one of an engine that was killed."""

T = TypeVar("T")


class SlotFiles:
    """Saves, restores and erases slots, each in a thread of its own, which waits until the slot is free.

    A slot has one at a time. So no more cells are in memory than those of each slot once, however many clients ask.
    """

    def __init__(
        self, states: SlotStates | None, fingerprint: bytes, loop: StepLoop, write: Callable[[FromEngine], None]
    ) -> None:
        """Create the service.

        Args:
            states: Slots of the model; None for a model that only computes embeddings.
            fingerprint: What the cells depend on besides their tokens.
            loop: Runs the work that needs the step thread.
            write: Sends a message to the gateway. Thread-safe.
        """
        self._states = states
        self._fingerprint = fingerprint
        self._loop = loop
        self._write = write
        self._waiting: dict[int, Future[Any]] = {}
        self._turns = [threading.Lock() for _ in range(states.slots)] if states else []

    def submit(self, query_id: int, query: KeepSlot) -> None:
        """Begin the work. Unless it is cancelled first, `Answered` or `QueryFailed` replies."""
        done: Future[Any] = Future()
        thread = threading.Thread(target=self._serve, args=(query_id, query, done), name="slot file", daemon=True)
        self._waiting[query_id] = done
        try:
            thread.start()
        except RuntimeError:
            del self._waiting[query_id]
            error = EngineFault("there is no thread for the slot", code="engine_failed")
            self._write(QueryFailed(query_id, Fault.of(error)))

    def cancel(self, query_id: int) -> None:
        """Cancel work that waits for its slot."""
        if (waiting := self._waiting.get(query_id)) is not None:
            waiting.cancel()

    def _serve(self, query_id: int, query: KeepSlot, done: Future[Any]) -> None:
        try:
            reply = self._reply(query_id, query, done)
        finally:
            del self._waiting[query_id]  # before the reply, after which the id may be used again
        if reply is not None:
            self._write(reply)

    def _reply(self, query_id: int, query: KeepSlot, done: Future[Any]) -> FromEngine | None:
        """Do the work. Returns the reply to the query; None if it was cancelled."""
        try:
            return Answered(query_id, self._answer(query, done))
        except CancelledError:
            return None
        except MemoryError:
            error: EngineError = EngineFault("there is no memory for the cells of the slot", code="engine_failed")
        except EngineError as raised:
            error = raised
        return QueryFailed(query_id, Fault.of(error))

    def _answer(self, query: KeepSlot, done: Future[Any]) -> SlotKept:
        if self._states is None:
            raise RequestError("this model only computes embeddings", code="unsupported_model", param="model")
        with self._turns[query.slot % len(self._turns)]:  # it may be no slot, which is found out later
            return self._act(self._states, query, done)

    def _act(self, states: SlotStates, query: KeepSlot, done: Future[Any]) -> SlotKept:
        seq_id, partition = query.slot, partition_hash(query.partition, query.adapters)
        is_free = partial(states.is_free, seq_id)
        match query.action:
            case SlotAction.SAVE:
                state = self._at_rest(partial(states.read, seq_id, partition), is_free, done)
                return SlotKept(len(state.tokens), write_state(Path(query.file), state, self._fingerprint))
            case SlotAction.RESTORE:
                state, size = read_state(Path(query.file), self._fingerprint)
                return SlotKept(self._at_rest(partial(states.write, seq_id, partition, state), is_free, done), size)
            case SlotAction.ERASE:
                return SlotKept(self._at_rest(partial(states.erase, seq_id, partition), is_free, done), 0)

    def _at_rest(self, work: Callable[[], T], is_free: Callable[[], bool], done: Future[T]) -> T:
        """Do work between two steps, as soon as the slot is free, and return its result."""

        def act() -> None:
            if done.cancelled():
                return
            try:
                settle = partial(done.set_result, work())
            except (EngineError, MemoryError) as error:
                settle = partial(done.set_exception, error)
            if done.set_running_or_notify_cancel():  # a cancel may have come during the work
                settle()

        self._loop.between_steps(act, when=lambda: done.cancelled() or is_free())
        return done.result()


def write_state(path: Path, state: SlotState, fingerprint: bytes) -> int:
    """Write a file, which takes the place of one with this name as a whole, and return its size.

    Only its user may read it: it has the tokens of a prompt and its answer. What a killed engine has left of such files
    in the folder is removed.

    Raises:
        RequestError: There can be no file with this name.
        EngineFault: The file cannot be written.
    """
    count = len(state.tokens)
    parts = (_COUNT.pack(count), struct.pack(f"={count}i", *state.tokens), state.cells)
    data = (_MARK, _digest(parts, fingerprint), *parts)
    part = path.with_name(f".{uuid4().hex}.part")  # without the name, which may be as long as names can be
    with suppress(OSError):  # the folder may be one that cannot be listed
        _remove_abandoned(path.parent)
    try:
        with open(part, "xb", opener=_private) as file:
            file.writelines(data)
        part.replace(path)
    except OSError as error:
        with suppress(OSError):  # it may not have been created
            part.unlink()
        raise _file_error("written", error) from error
    return sum(map(len, data))


def _remove_abandoned(folder: Path) -> None:
    now = time.time()
    for path in filter(lambda path: _PART.fullmatch(path.name), folder.iterdir()):
        with suppress(OSError):  # it is complete by now, or another user's
            if path.stat().st_mtime < now - _ABANDONED:
                path.unlink()


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _file_error(done: str, error: OSError) -> EngineError:
    message = f"the file cannot be {done}: {error.strerror}"
    if error.errno in _WRONG_NAMES:
        return RequestError(message, code="file_error", param="filename")
    return EngineFault(message, code="file_failed")


def _digest(parts: Iterable[bytes], fingerprint: bytes) -> bytes:
    digest = hashlib.blake2b(key=fingerprint, digest_size=_DIGEST)
    for part in parts:
        digest.update(part)
    return digest.digest()


def read_state(path: Path, fingerprint: bytes) -> tuple[SlotState, int]:
    """Return the contents of a file, and its size.

    Raises:
        RequestError: There is no file with this name, or it is not as a slot of this model was saved.
        EngineFault: The file cannot be read.
    """
    try:
        require_regular(path)
        with path.open("rb") as file:
            mark, digest = file.read(len(_MARK)), file.read(_DIGEST)
            data = file.read() if mark == _MARK else b""  # another file may be larger than the memory
    except OSError as error:
        raise _file_error("read", error) from error
    if mark != _MARK or digest != _digest([data], fingerprint):
        message = "this is no saved slot of this model and its settings, or it was changed"
        raise RequestError(message, code="invalid_file", param="filename")
    (count,) = _COUNT.unpack_from(data)
    tokens = struct.unpack_from(f"={count}i", data, _COUNT.size)
    return SlotState(tokens, data[_COUNT.size + 4 * count :]), len(mark) + len(digest) + len(data)
