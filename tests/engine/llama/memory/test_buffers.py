"""Buffers in llama.cpp's log, with GPUs that this machine need not have."""

from engine.llama.memory.buffers import HOST, Buffers, read_buffers, read_weights

MIB = 2**20
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
    assert read_buffers(CONTEXT.splitlines(), ["CUDA0", "CUDA1"]).cells == {
        "CUDA0": 16.5 * MIB,
        "CUDA1": 13.25 * MIB,
        HOST: 20 * MIB,
    }


def test_memory_that_is_no_gpus_is_the_hosts() -> None:
    found = read_buffers(CONTEXT.splitlines(), ["CUDA0", "CUDA1"])
    assert found.compute == {"CUDA0": 100 * MIB, HOST: round(14.64 * MIB)}
    assert read_buffers(CONTEXT.splitlines(), []).cells == {HOST: 49.75 * MIB}


def test_both_kinds_are_added_by_device() -> None:
    assert Buffers({HOST: 1, "CUDA0": 2}, {HOST: 10}).all == {HOST: 11, "CUDA0": 2}


def test_weights_are_read_by_device() -> None:
    lines = [
        "load_tensors:   CPU_Mapped model buffer size =   300.50 MiB",
        "load_tensors:   CPU_REPACK model buffer size =    10.00 MiB",
        "load_tensors:        CUDA0 model buffer size =   500.00 MiB",
        "load_tensors: offloaded 20/25 layers to GPU",
    ]
    assert read_weights(lines, ["CUDA0"]) == {HOST: 310.5 * MIB, "CUDA0": 500 * MIB}
