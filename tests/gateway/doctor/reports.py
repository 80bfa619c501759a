"""Reports of a machine where nothing is amiss."""

from dataclasses import replace
from typing import Any

from engine import BuildReport, EngineConfig, InstallationReport, MachineReport, ModelInfo, ServingReport
from gateway.doctor.diagnosis import Diagnosis, ModelDiagnosis, Repacking, Subject

TEMPLATE = "{% for message in messages %}{{ message.content }}{% endfor %}{{ tools }}"
MACHINE = MachineReport(
    cpu="Some CPU",
    features=frozenset({"avx", "avx2", "sse"}),
    processors=8,
    cores=4,
    usable_processors=8,
    quota=None,
    memory=16 * 2**30,
    available=8 * 2**30,
)
BUILD = BuildReport(
    bindings="0.3.36",
    version="0.5.0",
    ggml="0.25 (abc)",
    features=frozenset({"AVX", "AVX2", "REPACK"}),
    offloads=False,
    devices=(),
    repacks=False,
)
MODEL = ModelInfo(
    "some 7B Q4_K", 1000, 4096, 4096, 8, 7 * 10**9, 4 * 2**30, architecture="some", chat_template=TEMPLATE
)
SERVING = ServingReport(
    model=MODEL, token_bytes=1024, cache_bytes=2**25, prefix_store=2**29, contexts={4: 8192, 16: 2048}
)
EXAMINED = ModelDiagnosis(
    subject=Subject(name="some", config=EngineConfig(model="some.gguf")), serving=SERVING, failure=""
)
WELL = Diagnosis(
    installation=InstallationReport(machine=MACHINE, build=BUILD),
    repacking=Repacking.WORKS,
    models=(EXAMINED,),
    failure="",
)


def examined(**changes: Any) -> Diagnosis:
    """Return the reports with changes in that of the model."""
    return replace(WELL, models=(replace(EXAMINED, **changes),))
