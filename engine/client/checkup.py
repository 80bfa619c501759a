"""Examinations in processes of their own: a crash of llama.cpp is a finding, not the end of the caller."""

import os
import subprocess
from typing import Literal, TypeVar

import msgspec

from engine.checkup import REFUSED
from engine.client.process import CRASHES, child_environment, describe_exit
from engine.config import EngineConfig
from engine.environment import command_for

ReportT = TypeVar("ReportT")
_TIMEOUT = 300.0
"""Seconds. Metadata is read in one, also from slow disks."""


class CheckupError(Exception):
    """An examination failed. The text is a sentence."""

    def __init__(self, reason: str, *, crashed: bool) -> None:
        super().__init__(reason)
        self.crashed = crashed
        """True if the code of llama.cpp ended the process; False otherwise, as where the kernel had no memory."""


def examine(
    name: Literal["installation", "repacking", "serving"], config: EngineConfig, report: type[ReportT]
) -> ReportT:
    """Make an examination and return its report. Blocks the thread for a second or longer.

    Args:
        name: the examination.
        config: configuration of the model. `installation` does not read it, `repacking` only its file.
        report: type of the report.

    Raises:
        CheckupError: it failed.
    """
    command = [*command_for("engine.llama.checkup.main"), name]
    environment = {**child_environment(os.environ), "GGML_NO_BACKTRACE": "1"}
    payload = msgspec.json.encode(config)
    try:
        run = subprocess.run(  # noqa: S603 - our own program
            command, input=payload, capture_output=True, env=environment, timeout=_TIMEOUT, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise CheckupError(f"llama.cpp did not answer within {_TIMEOUT:g} s.", crashed=False) from error
    if run.returncode == REFUSED:
        raise CheckupError(run.stdout.decode(errors="replace"), crashed=False)
    if run.returncode != 0:
        lines = run.stderr.decode(errors="replace").strip().splitlines()
        words = f" Its last words: {lines[-1]}" if lines else ""
        raise CheckupError(describe_exit(run.returncode) + words, crashed=run.returncode in CRASHES)
    return msgspec.json.decode(run.stdout, type=report)
