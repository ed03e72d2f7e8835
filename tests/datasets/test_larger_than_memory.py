"""A dataset far larger than memory: opened, checked in part, read anywhere, with little memory of one's own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import resource, sys
from pathlib import Path
import numpy as np
from data_holder.datasets import open_dataset
from shared.claims.records import RecordField, RecordSchema
from shared.claims.visit import CursorRange

def anonymous():
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1])

path, kind = Path(sys.argv[1]), sys.argv[2]
if kind == "text":
    schema = RecordSchema(fields=(RecordField(name="tokens", dtype="uint8", shape=(1025,)),))
else:
    schema = RecordSchema(fields=(RecordField(name="x", dtype="float32", shape=(256,)),))
np.zeros(8)  # imports and pools are not what is measured
before = anonymous()
resource.setrlimit(resource.RLIMIT_DATA, (before * 1024 + (192 << 20),) * 2)  # private memory; mappings of files are not in it
dataset = open_dataset(path, schema, "bytes" if kind == "text" else "none")
for order in ("sequential", "shuffled"):
    for start in (0, dataset.records // 2, dataset.records - 3):
        out = bytearray(8 * dataset.record_bytes)
        dataset.read_into(CursorRange(start=start, count=8, order=order), out)
print(dataset.records, anonymous() - before)
"""


def run(path: Path, kind: str) -> tuple[int, int]:
    done = subprocess.run([sys.executable, "-c", SCRIPT, str(path), kind], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    records, kilobytes = done.stdout.split()
    return int(records), int(kilobytes)


def test_a_tebibyte_of_text(tmp_path: Path) -> None:
    size = 1 << 40
    with (tmp_path / "huge.txt").open("wb") as file:
        file.truncate(size)
    records, kilobytes = run(tmp_path / "huge.txt", "text")
    assert records == (size - 1) // 1024
    assert kilobytes < 64 << 10


def test_an_array_of_256_gibibytes(tmp_path: Path) -> None:
    n = 1 << 28
    with (tmp_path / "huge.npy").open("wb") as file:
        import numpy as np

        np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": (n, 256)})
        file.truncate(file.tell() + n * 1024)
    records, kilobytes = run(tmp_path / "huge.npy", "npy")
    assert records == n
    assert kilobytes < 64 << 10


def test_a_whole_scan_stays_small(tmp_path: Path) -> None:
    import tracemalloc

    from data_holder.datasets import RecordTree, open_dataset
    from shared.claims.records import RecordField, RecordSchema

    with (tmp_path / "half.bin").open("wb") as file:
        file.truncate(256 << 20)
    schema = RecordSchema(fields=(RecordField(name="tokens", dtype="uint16", shape=(1025,), min=0, max=99),))
    tracemalloc.start()
    try:
        with open_dataset(tmp_path / "half.bin", schema, "external") as dataset:
            dataset.check()
            RecordTree(dataset, bytes(32), tmp_path / "trees", "s")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 48 << 20
