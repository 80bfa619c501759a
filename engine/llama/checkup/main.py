"""Entry point of a process that makes one examination."""

import logging
import os
import sys

import msgspec

from engine.checkup import REFUSED
from engine.config import EngineConfig
from engine.errors import LoadError
from engine.llama.checkup.installation import examine_installation
from engine.llama.checkup.repacking import examine_repacking
from engine.llama.checkup.serving import examine_serving
from engine.llama.hardware.cpu_share import take_cpu_share


def main() -> None:
    """Make the examination that the first argument names, and write its report to standard output as JSON.

    Standard input has the configuration. File descriptor 1 is redirected to standard error, because C libraries print
    to it.
    """
    logging.basicConfig(level=logging.ERROR)
    out = os.dup(1)
    os.dup2(2, 1)
    config = msgspec.json.decode(sys.stdin.buffer.read(), type=EngineConfig)
    try:
        os.write(out, msgspec.json.encode(_examine(sys.argv[1], config)))
    except LoadError as error:
        os.write(out, error.message.encode())
        sys.exit(REFUSED)


def _examine(name: str, config: EngineConfig) -> object:
    match name:
        case "installation":
            return examine_installation()
        case "repacking":
            return examine_repacking(config)
        case "serving":
            take_cpu_share(config.hardware)  # as an engine does first: it may be refused, and decides the threads
            return examine_serving(config)
        case _:
            raise ValueError(f"there is no examination {name!r}")
