"""The container file: its stages, its user, its command and its probe."""

import json
import re
import subprocess
import tomllib
from urllib.parse import urlsplit

import pytest

from gateway.cli import read_settings
from tests.deployment.containerfile import FILE, entrypoint, only, stages
from tests.deployment.programs import packaged
from tests.gateway.application import apis
from tests.program import GUARD, ROOT

IMAGES = ("cpu", "cuda")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
IGNORED = "DL3008"
"""Rule that wants a fixed version of each package of the system: those disappear from its archive with each update."""


def test_the_linter_has_nothing_to_say() -> None:
    command = [packaged("hadolint"), "--ignore", IGNORED, "--no-color", str(FILE)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=GUARD, check=False)
    assert run.stdout + run.stderr == ""


def test_the_cpu_image_is_the_default_and_stages_are_built_before_they_are_copied_from() -> None:
    names = list(stages())
    assert names[-1] == "cpu"
    for stage in IMAGES:
        for source in re.findall(r"--from=(\S+)", " ".join(each.value for each in stages()[stage])):
            assert names.index(source) < names.index(stage)


def test_both_images_run_alike_without_root() -> None:
    names = ("ENV", "USER", "EXPOSE", "STOPSIGNAL", "HEALTHCHECK", "ENTRYPOINT")
    cpu, cuda = ({name: only(stages()[image], name) for name in names} for image in IMAGES)
    assert cpu == cuda
    assert cpu["USER"] == "10001:10001"
    assert cpu["STOPSIGNAL"] == "SIGTERM"


def test_the_program_accepts_its_command_and_the_probe_asks_it() -> None:
    settings = read_settings(entrypoint("cpu")[1:], {})
    assert entrypoint("cpu")[0] in PROJECT["scripts"]
    assert only(stages()["cpu"], "EXPOSE") == str(settings.port)
    command = json.loads(only(stages()["cpu"], "HEALTHCHECK").partition(" CMD ")[2])
    (url,) = (urlsplit(url) for url in re.findall(r"http://[^']+", command[-1]))
    assert (url.port, url.path) == (settings.port, "/readyz")
    assert url.path in {endpoint.path for api in apis() for endpoint in api.endpoints}
    compile(command[-1], "probe", "exec")


@pytest.mark.parametrize("stage", ["build-cpu", "build-cuda"])
def test_what_is_built_is_this_project(stage: str) -> None:
    instructions = stages()[stage]
    runs = " ".join(each.value for each in instructions if each.name == "RUN")
    (binding,) = (each for each in PROJECT["dependencies"] if each.startswith("llama-cpp-python"))
    assert f'"{binding}"' in runs
    (extras,) = re.findall(r'"\.\[([\w,]+)\]"', runs)
    assert set(extras.split(",")) <= PROJECT["optional-dependencies"].keys()
    copied = {name for each in instructions if each.name == "COPY" for name in each.value.split()[:-1]}
    ignore = FILE.with_name(f"{FILE.name}.dockerignore").read_text()
    assert {line[1:] for line in ignore.splitlines() if line.startswith("!")} == copied
    assert all((ROOT / name).exists() for name in copied)
