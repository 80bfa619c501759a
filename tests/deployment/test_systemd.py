"""The systemd unit: verified by systemd, and in agreement with the program."""

import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from gateway.cli import read_settings
from gateway.server.capacity import OTHER_FILES, connections_for
from gateway.server.limits import ServerLimits
from gateway.settings import Settings
from tests.program import GUARD, ROOT

FOLDER = ROOT / "examples" / "systemd"
UNIT = FOLDER / "llama-gateway.service"
DROP_IN = FOLDER / "cuda.conf"
PROGRAM = "/opt/llama-gateway/bin/llama-gateway"
EXPOSURE = 2.0
"""Most that `systemd-analyze security` may find, of 10."""


def options() -> Mapping[str, str]:
    """Return the last value of each option of the unit."""
    return dict(re.findall(r"^(\w+)=(.*)$", UNIT.read_text(), flags=re.MULTILINE))


def settings_of_the_unit(folder: Path) -> Settings:
    """Return the settings with the example file of the unit's comment."""
    example = "\n".join(re.findall(r"^#   ([a-z-]+ = .*)$", UNIT.read_text(), flags=re.MULTILINE))
    (folder / "config.toml").write_text(example.replace('model = "/srv/models/FILE.gguf"', "").replace("…", "secret"))
    program, *arguments = options()["ExecStart"].replace("%d", str(folder)).split()
    assert program == PROGRAM
    return read_settings(arguments, {})


def analyze(*arguments: str) -> str:
    """Return what systemd-analyze has to say. Skips the test without it."""
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is not installed")
    command = ["systemd-analyze", *arguments]
    run = subprocess.run(command, capture_output=True, text=True, timeout=GUARD, check=False)
    return run.stdout + run.stderr


@pytest.mark.parametrize("drop_ins", [[], [DROP_IN]], ids=["cpu", "cuda"])
def test_systemd_accepts_the_unit(tmp_path: Path, drop_ins: list[Path]) -> None:
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace(PROGRAM, sys.executable))
    (tmp_path / f"{UNIT.name}.d").mkdir()
    for file in drop_ins:
        shutil.copy(file, tmp_path / f"{UNIT.name}.d")
    assert analyze("verify", "--man=no", str(unit)) == ""


def test_the_sandbox_is_tight() -> None:
    (exposure,) = re.findall(r"exposure level for \S+: ([0-9.]+)", analyze("security", "--offline=true", str(UNIT)))
    assert float(exposure) <= EXPOSURE


def test_the_program_accepts_its_flags_and_the_file_of_the_comment(tmp_path: Path) -> None:
    assert settings_of_the_unit(tmp_path).api_key == ("secret",)
    assert options()["LoadCredential"].startswith("config.toml:")


def test_the_service_is_not_killed_before_its_requests_have_ended(tmp_path: Path) -> None:
    needed = settings_of_the_unit(tmp_path).grace + ServerLimits().close_timeout
    assert needed < float(options()["TimeoutStopSec"]) <= needed + 10
    assert options()["KillMode"] == "mixed"


def test_the_limit_of_files_suffices_for_long_queues() -> None:
    assert connections_for(slots=1024, queue_limit=16_384) + OTHER_FILES < int(options()["LimitNOFILE"])


def test_workers_may_take_their_network_away() -> None:
    assert options()["RestrictNamespaces"].split() == ["user", "net"]
