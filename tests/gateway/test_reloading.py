"""Reload on SIGHUP: what is read again, and what a failure changes."""

import logging
import os
import signal
from functools import partial
from pathlib import Path

import anyio
import pytest

from gateway.cli import SettingsError, read_settings
from gateway.reloading import SettingsReload, reload_all, reload_on_signal

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("root_level")]


async def test_a_signal_reloads_everything_and_the_server_goes_on() -> None:
    called = anyio.Event()
    calls = 0

    async def reload() -> None:
        nonlocal calls
        calls += 1
        called.set()

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            await tasks.start(reload_on_signal, [reload])
            for number in range(1, 4):
                os.kill(os.getpid(), signal.SIGHUP)
                await called.wait()
                called = anyio.Event()
                assert calls == number
            tasks.cancel_scope.cancel()


async def test_a_reload_that_fails_is_one_line_and_the_others_follow(caplog: pytest.LogCaptureFixture) -> None:
    followed = []

    async def fail() -> None:
        raise SettingsError("the file is broken")

    async def follow() -> None:
        followed.append(True)

    await reload_all([fail, follow])
    assert followed == [True]
    (record,) = caplog.records
    assert (record.getMessage(), record.exc_info) == ("cannot reload, nothing changes: the file is broken", None)


def reload_of(file: Path) -> SettingsReload:
    arguments = ["serve", "--config", str(file)]
    return SettingsReload(read_settings(arguments, {}), partial(read_settings, arguments, {}))


async def test_the_log_level_comes_from_the_file_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text("log-level = 'info'\n")
    reload = reload_of(file)
    logging.getLogger().setLevel("INFO")
    await reload()
    assert not caplog.records
    for level in ("debug", "info"):
        file.write_text(f"log-level = '{level}'\n")
        await reload()
        assert logging.getLogger().level == logging.getLevelName(level.upper())
    assert [record.getMessage() for record in caplog.records] == ["the log level is debug", "the log level is info"]


async def test_settings_that_need_a_restart_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text("slots = 2\n")
    reload = reload_of(file)
    logging.getLogger().setLevel("INFO")
    file.write_text("slots = 3\nport = 1\nqueue-limit = 2\n")
    await reload()
    (record,) = caplog.records
    assert record.getMessage() == "these settings have changed and need a restart: port, queue-limit, slots"


async def test_an_invalid_file_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text("log-level = 'info'\n")
    reload = reload_of(file)
    logging.getLogger().setLevel("INFO")
    file.write_text("log-level = 'debug'\nslots = 'many'\n")
    with pytest.raises(SettingsError, match="slots in"):
        await reload()
    assert logging.getLogger().level == logging.INFO
