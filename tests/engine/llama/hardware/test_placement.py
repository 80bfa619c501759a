"""Placements: the choice of devices, and which memory holds a tensor. The devices are fakes."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from engine.errors import LoadError
from engine.gguf.cells import CellBytes
from engine.hardware import Hardware
from engine.llama.devices import Device, additional_memory, all_devices, default_devices
from engine.llama.hardware.fit import LayerBytes
from engine.llama.hardware.fitting import layer_bytes, output_bytes
from engine.llama.hardware.placement import Placement, choose_devices

_GPU, _INTEGRATED = 1, 2


@dataclass(frozen=True, slots=True)
class FakeDevice(Device):
    """A device that is only described."""

    title: str = "CUDA0"
    type: int = _GPU
    room: int = 0
    address: str | None = None

    @property
    def backend(self) -> int:
        return hash(self.title.rstrip("0123456789"))

    @property
    def kind(self) -> int:
        return self.type

    @property
    def name(self) -> str:
        return self.title

    @property
    def description(self) -> str:
        return "H200"

    @property
    def hardware_id(self) -> str | None:
        return self.address

    @property
    def free(self) -> int:
        return self.room


CPU = FakeDevice(1, "CPU", 0)
FIRST = FakeDevice(2, "CUDA0", room=100)
SECOND = FakeDevice(3, "CUDA1", room=60)
ALL = (FIRST, SECOND, CPU)


def chosen(hardware: Hardware, available: Sequence[Device] = ALL) -> tuple[Device, ...]:
    return choose_devices(hardware, available, [device for device in available if device.offloads])


@contextmanager
def refused(reason: str) -> Iterator[None]:
    with pytest.raises(LoadError) as caught:
        yield
    assert str(caught.value) == reason


def test_a_gpu_of_two_backends_is_used_once() -> None:
    first, second = FakeDevice(2, "CUDA0", address="0000:c1:00.0"), FakeDevice(3, "CUDA1", address="0000:c2:00.0")
    again = FakeDevice(4, "Vulkan0", address="0000:c1:00.0")
    assert default_devices([CPU, first, second, again]) == [first, second]
    assert default_devices([FIRST, CPU, SECOND]) == [FIRST, SECOND]


def test_integrated_gpus_are_used_without_discrete_ones() -> None:
    integrated = FakeDevice(4, "Vulkan0", _INTEGRATED)
    assert default_devices([CPU, integrated]) == [integrated]
    assert default_devices([CPU, integrated, FIRST]) == [FIRST]
    assert default_devices([CPU]) == []


def test_integrated_gpus_of_a_second_backend_are_those_of_the_first() -> None:
    first, second = FakeDevice(4, "CUDA0", _INTEGRATED), FakeDevice(5, "CUDA1", _INTEGRATED)
    again = FakeDevice(6, "Vulkan0", _INTEGRATED)
    assert default_devices([CPU, first, second, again]) == [first, second]


def test_only_a_discrete_gpu_adds_memory_to_the_hosts_and_once() -> None:
    integrated = FakeDevice(4, "Vulkan1", _INTEGRATED, room=1000)
    again = FakeDevice(5, "Vulkan0", room=100, address="0000:01:00.0")
    first = FakeDevice(6, "CUDA0", room=100, address="0000:01:00.0")
    assert additional_memory([CPU, first, again, integrated]) == 100
    assert additional_memory([CPU, integrated]) == 0


def test_this_machine_describes_its_cpu() -> None:
    cpu = next(device for device in all_devices() if device.name == "CPU")
    assert not cpu.offloads
    assert cpu.description
    assert cpu.free > 0
    assert cpu.hardware_id is None


def test_all_gpus_are_used_unless_some_are_named() -> None:
    assert chosen(Hardware()) == (FIRST, SECOND)
    assert chosen(Hardware(devices=("CUDA1", "CUDA0"))) == (SECOND, FIRST)
    assert chosen(Hardware(devices=())) == ()
    assert chosen(Hardware(), [CPU]) == ()


def test_split_mode_none_uses_the_main_gpu() -> None:
    assert chosen(Hardware(split_mode="none")) == (FIRST,)
    assert chosen(Hardware(split_mode="none", main_gpu=1)) == (SECOND,)
    assert chosen(Hardware(split_mode="none"), [CPU]) == ()


def test_an_unknown_device_is_refused_with_the_known_ones() -> None:
    with refused("--device Metal: there is no such device to offload to: llama.cpp has CUDA0 (H200), CUDA1 (H200)"):
        chosen(Hardware(devices=("Metal",)))
    with refused("--device CPU: there is no such device to offload to: this build of llama.cpp sees no GPU"):
        chosen(Hardware(devices=("CPU",)), [CPU])


def test_choices_that_need_more_gpus_are_refused() -> None:
    with refused("--split-mode tensor needs a GPU: this build of llama.cpp sees no GPU"):
        chosen(Hardware(split_mode="tensor"), [CPU])
    with refused("--tensor-split has 2 shares for 1 devices: llama.cpp has CUDA0 (H200), CUDA1 (H200)"):
        chosen(Hardware(tensor_split=(1, 1), devices=("CUDA0",)))
    with refused("--main-gpu 2: there are 2 GPUs: llama.cpp has CUDA0 (H200), CUDA1 (H200)"):
        chosen(Hardware(split_mode="none", main_gpu=2))


TENSORS = {
    "token_embd.weight": 1,
    "blk.0.attn_q.weight": 10,
    "blk.1.attn_q.weight": 20,
    "blk.1.ffn_up_exps.weight": 200,
    "output.weight": 1000,
}


def placed(gpu_layers: int = -1, split: tuple[float, ...] = (), *overrides: tuple[str, str]) -> Placement:
    return Placement(gpu_layers, split, overrides, (FIRST, SECOND))


def test_the_input_and_the_first_layers_stay_in_host_memory() -> None:
    assert placed(-1).host_weights(TENSORS) == 1
    assert placed(3).host_weights(TENSORS) == 1
    assert placed(2).host_weights(TENSORS) == 11
    assert placed(1).host_weights(TENSORS) == 231
    assert placed(0).host_weights(TENSORS) == 1231
    assert Placement(-1, (), (), ()).host_weights(TENSORS) == 1231


def test_gpus_divide_tensors_evenly_or_as_configured() -> None:
    assert placed().gpus == {"CUDA0": 0.5, "CUDA1": 0.5}
    assert placed(-1, (3.0, 1.0)).gpus == {"CUDA0": 0.75, "CUDA1": 0.25}
    assert placed(-1, (2.0,)).gpus == {"CUDA0": 1.0, "CUDA1": 0.0}
    assert Placement(-1, (), (), ()).gpus == {}


def test_all_is_offloaded_with_the_output_layer_and_without_single_tensors() -> None:
    assert [placed(layers).offloads_all(2) for layers in (-1, 4, 3, 2, 0)] == [True, True, True, False, False]
    assert not placed(-1, (), ("_exps", "CPU")).offloads_all(2)
    assert not Placement(-1, (), (), ()).offloads_all(2)


def test_the_first_matching_override_decides() -> None:
    assert placed(-1, (), ("_exps", "CPU")).host_weights(TENSORS) == 201
    assert placed(-1, (), ("ffn_up", "CUDA0"), ("_exps", "CPU")).host_weights(TENSORS) == 1
    assert placed(0, (), ("_exps", "CUDA1")).host_weights(TENSORS) == 1031


def test_the_sizes_of_layers_are_those_of_their_tensors() -> None:
    assert layer_bytes(TENSORS, [], slots=1, context=8) == [LayerBytes(10), LayerBytes(20, 200)]
    assert output_bytes(TENSORS) == 1000
    del (tied := dict(TENSORS))["output.weight"]
    assert output_bytes(tied) == 1


def test_each_layer_has_cells_and_states_of_its_own() -> None:
    tensors, cells = {"blk.0.attn_q.weight": 5, "blk.1.ssm_in.weight": 6}, [CellBytes(7, 0), CellBytes(0, 8)]
    assert layer_bytes(tensors, cells, slots=2, context=100) == [LayerBytes(5 + 2 * 100 * 7), LayerBytes(6 + 2 * 8)]


@pytest.mark.parametrize(
    ("layers", "names", "expected"),
    [
        (-1, ["CUDA0"], True),
        (1, ["Vulkan0", "CUDA0"], True),
        (0, ["CUDA0"], False),
        (-1, ["Vulkan0"], False),
        (-1, [], False),
    ],
)
def test_layers_of_cuda_devices(layers: int, names: list[str], expected: bool) -> None:
    found = tuple(FakeDevice(at, name) for at, name in enumerate(names))
    assert Placement(layers, (), (), found).offloads_to_cuda is expected
