"""The fit: never over budget, no worse with more memory, and experts leave the GPUs before layers do."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from engine.llama.hardware.fit import Fit, LayerBytes, fit

MiB = 2**20
SIZES = st.integers(0, 400).map(lambda size: size * MiB)
LAYERS = st.lists(st.builds(LayerBytes, SIZES, st.just(0) | SIZES), min_size=1, max_size=12)
DEVICES = st.lists(st.integers(0, 4000).map(lambda size: size * MiB), min_size=1, max_size=4)
MARGIN = 100 * MiB


@dataclass(frozen=True, slots=True)
class Model:
    """A model's sizes."""

    layers: Sequence[LayerBytes]
    output: int

    def fit(self, free: Sequence[int]) -> Fit | None:
        return fit(self.layers, self.output, free, MARGIN)

    def used(self, found: Fit, devices: int) -> list[int]:
        """Return the bytes on each device, placed as llama.cpp's `load_tensors` does it."""
        used = [0] * devices
        ends = list(accumulate(found.tensor_split))
        first = len(self.layers) + 1 - found.gpu_layers
        for at in range(first, len(self.layers) + 1):
            if at == len(self.layers):
                size = self.output
            else:
                layer = self.layers[at]
                size = layer.dense + (layer.experts if at >= found.cpu_moe else 0)
            used[bisect_right(ends, at - first)] += size
        return used


MODELS = st.builds(Model, LAYERS, SIZES)


@given(MODELS, DEVICES)
def test_no_device_is_over_its_budget(model: Model, free: list[int]) -> None:
    found = model.fit(free)
    if found is None:
        return
    assert sum(found.tensor_split) == found.gpu_layers
    for used, size in zip(model.used(found, len(free)), free, strict=True):
        assert used <= max(size - MARGIN, 0)


def offloaded(model: Model, found: Fit | None) -> tuple[int, int]:
    """Return the offloaded layers, and the layers whose experts are, too: the more of the first the better."""
    layers = len(model.layers)
    return (layers + 1, layers) if found is None else (found.gpu_layers, layers - found.cpu_moe)


@given(MODELS, DEVICES, st.integers(1, 4000), st.data())
def test_more_memory_never_offloads_less(model: Model, free: list[int], more: int, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(free) - 1))
    larger = [size + (more * MiB if device == at else 0) for device, size in enumerate(free)]
    before, after = model.fit(free), model.fit(larger)
    if before is not None:
        assert offloaded(model, after) >= offloaded(model, before)


@given(MODELS, DEVICES)
def test_layers_stay_in_host_memory_only_after_all_experts(model: Model, free: list[int]) -> None:
    found = model.fit(free)
    if found is not None and found.gpu_layers <= len(model.layers):
        assert not any(layer.experts for layer in model.layers[found.cpu_moe :])


@given(MODELS, DEVICES)
def test_the_fewest_experts_leave_the_gpus(model: Model, free: list[int]) -> None:
    found = model.fit(free)
    if found is None or found.gpu_layers <= len(model.layers) or found.cpu_moe == 0:
        return
    fewer = Fit(found.gpu_layers, found.tensor_split, found.cpu_moe - 1)
    used = model.used(fewer, len(free))
    assert len(free) > 1 or used[0] > max(free[0] - MARGIN, 0)


def layers(count: int, dense: int, experts: int = 0) -> list[LayerBytes]:
    return [LayerBytes(dense * MiB, experts * MiB)] * count


def fitted(model: list[LayerBytes], *free: int) -> Fit | None:
    return fit(model, 50 * MiB, [size * MiB for size in free], MARGIN)


def test_a_model_that_fits_is_left_to_llama_cpp() -> None:
    assert fitted(layers(10, 100), 1150) is None
    assert fitted(layers(10, 100), 700, 700) is None


def test_the_last_layers_and_the_output_of_a_dense_model_are_offloaded() -> None:
    assert fitted(layers(10, 100), 1149) == Fit(10, (10,), 0)
    assert fitted(layers(10, 100), 400) == Fit(3, (3,), 0)
    assert fitted(layers(10, 100), 100) == Fit(0, (0,), 0)


def test_the_experts_of_the_first_layers_leave_first() -> None:
    model = layers(10, 10, experts=90)
    assert fitted(model, 1149) == Fit(11, (11,), 1)
    assert fitted(model, 700) == Fit(11, (11,), 5)
    assert fitted(model, 250) == Fit(11, (11,), 10)
    assert fitted(model, 200) == Fit(6, (6,), 10)


def test_layers_before_the_first_experts_are_no_reason_to_stop() -> None:
    model = [*layers(2, 100), *layers(8, 10, experts=90)]
    assert fitted(model, 1000) == Fit(11, (11,), 4)


def test_whole_layers_move_where_llama_cpp_would_overfill_a_device() -> None:
    assert fitted(layers(10, 100), 880, 470) == Fit(11, (7, 4), 0)


def test_the_fullest_device_keeps_as_much_room_as_possible() -> None:
    model = [LayerBytes(600 * MiB), *layers(6, 100)]
    assert fitted(model, 800, 800) == Fit(8, (1, 7), 0)


def test_devices_without_memory_get_no_layer() -> None:
    assert fitted(layers(10, 100), 0, 600) == Fit(5, (0, 5), 0)
    assert fitted(layers(10, 100), 600, 0) == Fit(5, (5, 0), 0)
    assert fitted(layers(10, 100), 0) == Fit(0, (0,), 0)
