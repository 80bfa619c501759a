"""The event loop's lag: measured, logged, reported, and never counted as a client's time."""

import logging
import time

import anyio
import anyio.lowlevel
import pytest
from starlette.types import Receive, Scope, Send

from gateway.middleware.limits import RequestLimits
from gateway.middleware.patience import Patience, PatienceError
from gateway.middleware.request_scope import RequestScope
from gateway.server import lag
from gateway.server.lag import LOG_PAUSE, NOTABLE, REPORTED_FOR, TICK, LoopClock, running
from gateway.server.limits import ServerLimits
from tests.gateway.server.apps import OK, chunk, hello, scoped
from tests.gateway.server.sockets import get, post, serving

pytestmark = pytest.mark.anyio


class FakeTime:
    """The loop's clock and its sleeps, by hand. A sleep ends late by the next of `lags`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *lags: float) -> None:
        self.now = 1000.0
        self._lags = list(lags)
        monkeypatch.setattr("gateway.server.lag.anyio.current_time", lambda: self.now)
        monkeypatch.setattr("gateway.server.lag.anyio.sleep", self._sleep)

    async def _sleep(self, seconds: float) -> None:
        if not self._lags:
            raise StopAsyncIteration
        self.now += seconds + self._lags.pop(0)


async def run(clock: LoopClock) -> None:
    with pytest.raises(StopAsyncIteration):
        await clock.run()


async def test_the_clock_runs_as_the_loop_does(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeTime(monkeypatch, *[0.0] * 50)
    clock = LoopClock()
    before = clock.time()
    await run(clock)
    fake.now += TICK / 2
    assert clock.time() - before == pytest.approx(50 * TICK + TICK / 2, abs=2 * TICK)
    assert clock.lag == 0


async def test_the_clock_does_not_count_a_stall(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither before nor after its task has run again."""
    fake = FakeTime(monkeypatch, 0.0, 20.0, 0.0)
    clock = LoopClock()
    before = clock.time()
    await run(clock)
    after_a_stall = clock.time()
    assert after_a_stall - before <= 5 * TICK
    fake.now += 20
    assert clock.time() - after_a_stall < 3 * TICK


async def test_the_clock_never_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeTime(monkeypatch, *[0.0, 3.0, 0.01] * 10)
    clock = LoopClock()
    times = [clock.time()]
    sleep = fake._sleep

    async def noting(seconds: float) -> None:
        times.append(clock.time())
        await sleep(seconds)
        times.append(clock.time())

    monkeypatch.setattr("gateway.server.lag.anyio.sleep", noting)
    await run(clock)
    assert times == sorted(times)


async def test_a_notable_lag_is_reported_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeTime(monkeypatch, 0.01, 1.5, NOTABLE, 0.0)
    clock = LoopClock()
    await run(clock)
    assert clock.lag == pytest.approx(1.5)
    fake.now += REPORTED_FOR
    assert clock.lag == 0


async def test_lags_are_logged_now_and_then(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    FakeTime(monkeypatch, NOTABLE / 2, 1.0, 2.0, LOG_PAUSE, 0.0)
    with caplog.at_level(logging.WARNING):
        await run(LoopClock())
    assert [record.getMessage() for record in caplog.records] == [
        "the event loop was held up for 1.00 s",
        "the event loop was held up for 10.00 s",
    ]


async def test_a_real_stall_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, tick = LoopClock(), 0.05
    monkeypatch.setattr(lag, "TICK", tick)
    with anyio.fail_after(20):
        async with running(clock):
            while clock.time() <= 3 * tick:
                await anyio.lowlevel.checkpoint()
            before = clock.time()
            time.sleep(NOTABLE + 4 * tick)  # noqa: ASYNC251 - this is the stall
            assert clock.time() - before < 3 * tick
            while not clock.lag:
                await anyio.lowlevel.checkpoint()
    assert clock.lag >= NOTABLE


# Patience


class StoppedClock:
    """A clock of a program that is stalled until `go`: only the loop's own time passes."""

    def __init__(self) -> None:
        self.stalled = True
        self._offset = 0.0

    def __call__(self) -> float:
        return self._offset if self.stalled else anyio.current_time() - self._offset

    def go(self) -> None:
        self.stalled, self._offset = False, anyio.current_time() - self._offset


async def test_patience_ends() -> None:
    with pytest.raises(PatienceError):
        await Patience(0.01, anyio.current_time).wait(anyio.sleep_forever)


async def test_patience_outlasts_a_stall() -> None:
    attempts = 0
    clock = StoppedClock()

    async def third_time() -> str:
        nonlocal attempts
        attempts += 1
        if attempts < 3:
            await anyio.sleep_forever()
        return "at last"

    with anyio.fail_after(20):
        assert await Patience(0.01, clock).wait(third_time) == "at last"
    assert attempts == 3


async def test_patience_ends_after_a_stall() -> None:
    clock = StoppedClock()
    attempts = 0

    async def count() -> None:
        nonlocal attempts
        attempts += 1
        if attempts == 3:
            clock.go()
        await anyio.sleep_forever()

    with anyio.fail_after(20), pytest.raises(PatienceError):
        await Patience(0.01, clock).wait(count)
    assert attempts >= 3


async def test_a_stall_is_not_blamed_on_a_slow_reader() -> None:
    """The write timeout passes several times during a stall, and the client then reads everything."""
    size = 8 << 20

    async def flood(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send(OK)
        await send(chunk(b"x" * size, more=False))

    clock = StoppedClock()
    async with serving(scoped(flood), ServerLimits(write_timeout=0.02), clock=clock) as site:
        client = site.client()
        client.write(get(headers="connection: close\r\n"))
        with anyio.move_on_after(0.1):
            await anyio.sleep_forever()
        received = 0
        while data := await client.receive():
            received += len(data)
        assert received > size


async def test_a_stall_is_not_blamed_on_a_slow_head() -> None:
    clock = StoppedClock()
    async with serving(scoped(hello), ServerLimits(keep_alive_timeout=0.02), clock=clock) as site:
        client = site.client()
        client.write(get("/late")[:-2])
        with anyio.move_on_after(0.1):
            await client.receive()
        client.write(b"\r\n")
        assert (await client.answer()).body == b"/late "
        clock.go()
        assert await client.is_closed()


async def test_a_stall_is_not_blamed_on_a_slow_body() -> None:
    clock = StoppedClock()
    app = RequestScope(hello, RequestLimits(body_timeout=0.02), clock=clock)
    async with serving(app) as site:
        client = site.client()
        client.write(post(b"hello")[:-1])
        with anyio.move_on_after(0.1):
            await client.receive()
        client.write(b"o")
        assert (await client.answer()).body == b"/ hello"
