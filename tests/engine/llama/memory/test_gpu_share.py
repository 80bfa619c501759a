"""GPU memory of one process, while others load and unload."""

import pytest

from engine.llama.memory.buffers import HOST
from engine.llama.memory.gpu_share import DRIVER, gpu_share

GIB = 2**30
WEIGHTS = {HOST: GIB, "CUDA0": 8 * GIB, "CUDA1": 6 * GIB}
CONTEXT = {HOST: GIB // 2, "CUDA0": 2 * GIB}
OWN = 16 * GIB


@pytest.mark.parametrize(
    ("difference", "share"),
    [
        (OWN + GIB, OWN + GIB),  # alone: with the driver's part
        (2 * OWN, OWN + GIB + GIB // 2 + 2 * DRIVER),  # beside another load
        (GIB, OWN),  # beside an unload
        (-GIB, OWN),
    ],
)
def test_other_processes_change_the_share_little(difference: int, share: int) -> None:
    assert gpu_share(difference, WEIGHTS, CONTEXT, gpus=2, offloads=True) == share


def test_weights_that_gpus_share_count_though_their_name_is_that_of_no_gpu() -> None:
    assert gpu_share(9 * GIB, {HOST: 8 * GIB}, {"CUDA0": GIB}, gpus=2, offloads=True) == 9 * GIB


def test_a_model_in_host_memory_takes_at_most_what_the_driver_does() -> None:
    assert gpu_share(9 * GIB, {HOST: 8 * GIB}, {HOST: GIB}, gpus=1, offloads=False) == DRIVER
