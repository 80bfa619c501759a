"""Commands that their user ends: by Ctrl-C, or by a reader of their output that leaves."""

import os
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

from gateway.program import main
from tests.program import GUARD, ROOT

INTERRUPT = KeyboardInterrupt()


@pytest.mark.parametrize("ended", [INTERRUPT, BaseExceptionGroup("tasks", [INTERRUPT])])
def test_ctrl_c_is_an_exit_code_and_no_traceback(monkeypatch: pytest.MonkeyPatch, ended: BaseException) -> None:
    monkeypatch.setattr("gateway.doctor.command.doctor", Mock(side_effect=ended))
    assert main(["doctor"]) == 130


@pytest.mark.parametrize("failure", [ValueError("a defect"), ExceptionGroup("tasks", [ValueError("a defect")])])
def test_a_defect_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch, failure: Exception) -> None:
    monkeypatch.setattr("gateway.doctor.command.doctor", Mock(side_effect=failure))
    with pytest.raises(type(failure)):
        main(["doctor"])


def test_a_reader_that_leaves_is_an_exit_code_and_no_traceback(tmp_path: Path) -> None:
    store = str(tmp_path / "keys.db")
    assert main(["keys", "add", "--keys", store, "--name", "a"]) == 0
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "gateway", "keys", "list", "--keys", store]
    with os.fdopen(writer, "wb") as output:
        ended = subprocess.run(command, stdout=output, stderr=subprocess.PIPE, cwd=ROOT, timeout=GUARD, check=False)
    assert (ended.returncode, ended.stderr) == (141, b"")
