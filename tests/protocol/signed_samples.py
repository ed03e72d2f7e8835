"""One document of each kind that is signed in CBOR, with all of its fields, as plain values. Knows no signature."""

from __future__ import annotations

from typing import Any, Final

from shared.claims.receipt import DeviceStatement, Receipt, TourStatement
from shared.claims.share import ShareStatement

SESSION, VISIT = "s_0123456789abcdef", "v_0123456789abcdef"
_OF_DEVICE: dict[str, Any] = {"device": "gpu-1", "boot_counter": 1, "life": 2, "session": SESSION}

RECEIPT: Final[dict[str, Any]] = {
    "profile": "gput/receipt/1", "session": SESSION, "visit": VISIT, "index": 1, "round": 1, "attempt": 1, "holder": "city",
    "manifest": "1" * 64, "dataset_root": "2" * 64, "epoch": 2, "fence_epoch": 3, "outcome": "closed", "gpu_evidence": "3" * 64,
    "holder_runtime_data": "4" * 64, "orchestrator_runtime_data": "5" * 64, "losses_released": True, "validation_before": 1.5,
    "validation_after": 1.0, "statement": b"statement", "closed_at": 1_700_000_000, "privacy_spent": {"epsilon": 1.25, "delta": 1e-6},
    "timers": {"grab_gpu": 0.5, "import_key": 0.25, "buffer_read": 1.0, "gpu_write": 0.125, "export_key": 0.0},
}  # fmt: skip
STATEMENT: Final[dict[str, Any]] = {
    "profile": "gput/statement/1", **_OF_DEVICE, "backend": "EMULATED", "visit": VISIT, "epoch": 2, "holder": "city",
    "travel_mode": "scoped", "records": 8, "length": 512, "commitment": "6" * 64, "dataset_root": "2" * 64, "dataset_records": 100,
    "program": "7" * 96, "model_before": "8" * 64, "model_after": "9" * 64, "first_step": 0, "steps": 2, "scrubbed_bytes": 4096,
    "scrub_digest": "a" * 64,
    "privacy": {"max_grad_norm": 1.0, "noise_multiplier": 1.5, "delta": 1e-6, "max_epsilon": 8.0},
    "accumulated": {"before": "b" * 64, "after": "c" * 64, "batches": 2},
    "mixed": {"round": 1, "seed": 0, "visits": 2, "records": 16, "first": 8},
}  # fmt: skip
TOUR: Final[dict[str, Any]] = {
    "profile": "gput/tour/1", **_OF_DEVICE, "backend": "EMULATED", "program": "7" * 96, "round": 1, "batches": 2, "stepped": True,
    "model_before": "8" * 64, "model_after": "9" * 64, "optimiser_before": "b" * 64, "optimiser_after": "c" * 64,
}  # fmt: skip
SHARE: Final[dict[str, Any]] = {
    "profile": "gput/share/1", **_OF_DEVICE, "epoch": 2, "holder": "city", "share": "d" * 64,
}  # fmt: skip
SIGNED: Final = {Receipt: RECEIPT, DeviceStatement: STATEMENT, TourStatement: TOUR, ShareStatement: SHARE}
