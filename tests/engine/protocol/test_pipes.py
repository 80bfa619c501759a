"""The ends of the pipes to a child process."""

import os

import anyio
import pytest

from engine.protocol.pipes import PipeReader, PipeWriter

pytestmark = pytest.mark.anyio

MORE_THAN_A_PIPE_HOLDS = bytes(range(256)) * 4096


async def test_what_fits_is_sent_at_once() -> None:
    from_writer, to_reader = os.pipe()
    writer = PipeWriter(to_reader)
    writer.offer(b"one")
    writer.offer(b"two")
    assert not writer.has_unsent
    assert os.read(from_writer, 100) == b"onetwo"
    writer.close()
    assert os.read(from_writer, 100) == b""
    os.close(from_writer)


async def test_what_does_not_fit_is_sent_in_order() -> None:
    from_writer, to_reader = os.pipe()
    writer, reader = PipeWriter(to_reader), PipeReader(from_writer)
    received = bytearray()

    async def read() -> None:
        while data := await reader.receive():
            received.extend(data)

    writer.offer(MORE_THAN_A_PIPE_HOLDS)
    writer.offer(b"end")
    assert writer.has_unsent
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            await writer.flush()
            writer.close()
    assert received == MORE_THAN_A_PIPE_HOLDS + b"end"
    reader.close()


async def test_a_closed_pipe_is_broken() -> None:
    from_writer, to_reader = os.pipe()
    writer = PipeWriter(to_reader)
    os.close(from_writer)
    with pytest.raises(BrokenPipeError):
        writer.offer(b"lost")
    writer.close()
    writer.close()
    with pytest.raises(BrokenPipeError):
        writer.offer(b"lost")


async def test_a_reader_that_is_closed_here_stops() -> None:
    from_writer, to_reader = os.pipe()
    reader = PipeReader(from_writer)
    async with anyio.create_task_group() as tasks:

        async def read() -> None:
            with pytest.raises(anyio.ClosedResourceError):
                await reader.receive()

        tasks.start_soon(read)
        await anyio.wait_all_tasks_blocked()
        reader.close()
    os.close(to_reader)
