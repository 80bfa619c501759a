"""Buffers in llama.cpp's log, with GPUs that this machine need not have."""

from engine.llama.memory.buffers import HOST, Buffers, read_buffers, read_weights

MIB = 2**20
GPUS = {"CUDA0": 0.75, "CUDA1": 0.25}
CONTEXT = """\
llama_context:  CUDA_Host  output buffer size =     4.64 MiB
llama_kv_cache_iswa: creating non-SWA KV cache, size = 1024 cells
llama_kv_cache: layer   0: dev = CUDA0
llama_kv_cache: layer   1: filtered
llama_kv_cache: layer   2: dev = CUDA1
llama_kv_cache: layer   4: dev = CPU
llama_kv_cache: layer   6: dev = CPU
llama_kv_cache:      CUDA0 KV buffer size =     0.00 MiB
llama_kv_cache: size =   40.00 MiB (  1024 cells,   4 layers,  2/2 seqs), K (f16):   20.00 MiB, V (f16):   20.00 MiB
llama_kv_cache: layer   1: dev = CUDA0
llama_kv_cache: size =    6.50 MiB (   512 cells,   1 layers,  2/2 seqs), K (f16):    3.25 MiB, V (f16):    3.25 MiB
llama_memory_recurrent, layer   3: dev = CUDA1
llama_memory_recurrent: size =    2.25 MiB (     2 cells,   1 layers,  2 seqs  0 rs_seq), R (f32):    0.25 MiB
llama_kv_cache_dsv4: layer   7: dev = CUDA1
llama_kv_cache_dsv4:      CUDA1 DSV4 csa state buffer size =     1.00 MiB
sched_reserve:      CUDA0 compute buffer size =   100.00 MiB
sched_reserve:  CUDA_Host compute buffer size =    10.00 MiB
"""


def test_the_cells_are_where_their_layers_are() -> None:
    assert read_buffers(CONTEXT.splitlines(), GPUS).cells == {
        "CUDA0": 16.5 * MIB,
        "CUDA1": 13.25 * MIB,
        HOST: 20 * MIB,
    }


def test_memory_that_is_no_gpus_is_the_hosts() -> None:
    found = read_buffers(CONTEXT.splitlines(), GPUS)
    assert found.compute == {"CUDA0": 100 * MIB, HOST: round(14.64 * MIB)}
    assert read_buffers(CONTEXT.splitlines(), {}).cells == {HOST: 49.75 * MIB}


def test_both_kinds_are_added_by_device() -> None:
    assert Buffers({HOST: 1, "CUDA0": 2}, {HOST: 10}).all == {HOST: 11, "CUDA0": 2}


def test_weights_are_read_by_device() -> None:
    lines = [
        "load_tensors:   CPU_Mapped model buffer size =   300.50 MiB",
        "load_tensors:   CPU_REPACK model buffer size =    10.00 MiB",
        "load_tensors:        CUDA0 model buffer size =   500.00 MiB",
        "load_tensors: offloaded 20/25 layers to GPU",
    ]
    assert read_weights(lines, {"CUDA0": 1.0}) == {HOST: 310.5 * MIB, "CUDA0": 500 * MIB}


def test_tensors_that_gpus_divide_are_not_in_host_memory() -> None:
    lines = [
        "load_tensors:   CPU_Mapped model buffer size =     0.50 MiB",
        "load_tensors:       Meta() model buffer size =     6.00 MiB",  # the largest part
        "load_tensors:  CUDA0_Split model buffer size =    16.00 MiB",  # the whole
    ]
    assert read_weights(lines[:2], GPUS) == {HOST: 0.5 * MIB, "CUDA0": 6 * MIB, "CUDA1": 2 * MIB}
    assert read_weights(lines[2:], GPUS) == {"CUDA0": 12 * MIB, "CUDA1": 4 * MIB}


def test_cells_that_gpus_divide_are_not_in_host_memory() -> None:
    lines = [
        "llama_kv_cache: layer   0: dev = Meta()",
        "llama_kv_cache: layer   1: dev = Meta(CUDA0,CUDA1)",
        "llama_kv_cache: layer   2: dev = CPU",
        "llama_kv_cache:     Meta() KV buffer size =     6.00 MiB",
        "llama_kv_cache: size =   12.00 MiB (  2048 cells,   3 layers,  1/1 seqs), K (f16):    6.00 MiB, V (f16):",
        "sched_reserve:     Meta() compute buffer size =     7.00 MiB",
    ]
    found = read_buffers(lines, GPUS)
    assert found.cells == {"CUDA0": 6 * MIB, "CUDA1": 2 * MIB, HOST: 4 * MIB}
    assert found.compute == {"CUDA0": 7 * MIB, "CUDA1": 7 * MIB}
