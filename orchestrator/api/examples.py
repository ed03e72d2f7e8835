"""Examples for OpenAPI, one per answer. Knows no behaviour; a test checks that every operation has one."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

S, V, C = "s_mfrggzdfmztwq2lk", "v_nbswy3dpfqqho33s", "c_mzxw6ytboi2dcnbr"
H64, H96, B64 = "5f" * 32, "a7" * 48, "eyJmb3JtYXQiOiJncHV0In0="

PARTY: dict[str, Any] = {
    "name": "hospital-a", "role": "holder", "public_key": H64, "key": H64, "enrolled_at": 1795.0, "last_seen": None,
    "key_valid_from": 1795.0, "key_valid_until": None,
}  # fmt: skip
PARTY_KEY: dict[str, Any] = {
    "key": H64, "public_key": H64, "valid_from": 1795.0, "valid_until": 1796.0, "came": "enrolled", "came_by": "alice",
    "ended_by": "hospital-a", "previous": None, "statement": None,
}  # fmt: skip
SIGNED_ROTATION: dict[str, Any] = {"document": B64, "old_signature": B64, "new_signature": B64}
FILE: dict[str, Any] = {"digest": H64, "size_bytes": 4096, "stored_at": 1795.0}
PROGRAM: dict[str, Any] = {
    "digest": H96, "name": "gpt2", "description": "", "loss_unit": "nats", "operators": ["aten.add.Tensor"],
    "records": {"fields": [{"name": "tokens", "dtype": "uint8", "shape": [65], "min": None, "max": None}]},
    "parameters": 16384, "parameter_tensors": 16, "state": 0, "model_bytes": 65536, "archive_bytes": 20000,
    "initial_weights": {"kind": "seed", "seed": 0}, "defaults": {"batch_size": 8}, "tokenizer": "bytes",
}  # fmt: skip
SIGNED: dict[str, Any] = {"document": B64, "signature": B64}
PREDECESSOR: dict[str, Any] = {
    "session": S, "manifest": H64, "model": H64, "optimiser": H64, "step": 40, "log_size": 5, "log_root": H64,
    "contributors": [{"holder": "hospital-a", "key": H64, "records": 160}],
}  # fmt: skip
SESSION: dict[str, Any] = {
    "id": S, "name": "study", "phase": "RUNNING", "waiting_for": [], "version": 12, "manifest_digest": H64, "owner": "alice",
    "predecessor": None,
    "program": H96, "gpu": "gpu-0", "backend": "EMULATED", "created_at": 1795.0, "updated_at": 1796.0,
    "paused_at": None, "paused_until": None, "round": 1, "rounds": 4,
    "position": 2, "visits_closed": 2, "visits_total": 12, "step": 20, "steps_total": 120,
    "holders": [{"holder": "hospital-a", "decision": "approve", "channel": True, "last_seen": 1796.0, "records_done": 160,
                 "rejected": 0, "quarantined": False, "privacy": {"spent": 1.2711, "planned": 1.9931, "delta": 1e-05}}],
    "current_visit": {"id": V, "holder": "hospital-a", "phase": "AWAY", "round": 1, "index": 3, "attempt": 1},
    "agreement": {"compared": ["hospital-a"], "held": False, "findings": []},
    "removal": None,
    "failure": None, "validation_loss": {"first": 5.5, "last": 4.2}, "stopped_early": None, "model": None, "log": {"size": 2, "root": H64},
    "bytes": {"holder_to_gpu_records": 81920, "holder_to_gpu_proofs": 9600, "holder_to_gpu_sent": 92400, "orchestrator_to_gpu": 90000,
              "gpu_to_orchestrator": 20000, "model_to_holders": 0},
}  # fmt: skip
VERDICT: dict[str, Any] = {"changes": True, "unjudged": []}
REMOVAL: dict[str, Any] = {"asked_at": 1796.0, "waits_for": ["hospital-a"], "until": 1211396.0}
ESTIMATE: dict[str, Any] = {
    "visits": 4, "steps": 40, "bytes": 20800, "seconds": 0.52, "gpu_hours": 0.000144,
    "holders": [{"holder": "hospital-a", "visits": 4, "steps": 40, "records": 320, "bytes": 20800, "passes": 0.32,
                 "seconds_per_visit": 0.13, "seconds": 0.52}],
    "costs": {"control_s": 0.012, "byte_s": 1e-07, "step_s": 0.0117, "check_s": None, "visits": 48, "sessions": 3, "trained_visits": 24},
    "basis": "seconds are medians of 48 visits of 3 earlier sessions here, of 24 for a training step", "unknown": [],
}  # fmt: skip
APPROVAL: dict[str, Any] = {
    "holder": "hospital-a", "decision": "approve", "reason": "", "records": 1000, "record_bytes": 65, "dataset_root": H64, "at": 1795.0,
    "profile": {"fields": [{"name": "x", "dtype": "float32", "shape": [], "units": ["mg"], "classes": [], "present": None,
                            "scales": [{"size": 1, "spread": 2}]}]},
    "document": B64, "signature": B64, "public_key": H64,
}  # fmt: skip
VISIT: dict[str, Any] = {
    "id": V, "session": S, "round": 1, "index": 3, "attempt": 1, "holder": "hospital-a", "phase": "CLOSED", "epoch": 5,
    "fence_epoch": 6, "cursor": {"start": 0, "count": 80, "order": "sequential", "seed": 0}, "first_step": 0, "steps": 10,
    "records": 80, "length": 5200, "bytes_sent": 5300, "commitment": H64,
    "timers": {"grab_gpu": 0.001, "import_key": 0.001, "buffer_read": 0.001, "gpu_write": 0.002, "export_key": 0.001},
    "losses": [5.5, 5.3], "mean_loss": 5.4, "losses_released": True, "validation_before": 5.5, "validation_after": 5.2,
    "outcome": "closed", "reason": None, "receipt": 2, "durations": {"grant": 0.002}, "planned_at": 1795.0, "closed_at": 1796.0,
}  # fmt: skip
EVIDENCE: dict[str, Any] = {"kind": "tdx-quote", "quote": B64, "endorsements": ""}
CHANNEL_REQUEST: dict[str, Any] = {"nonce": H64}
CHANNEL_PROOF: dict[str, Any] = {"runtime_data": B64, "evidence": EVIDENCE, "one_time_key": SIGNED}
REPORT: dict[str, Any] = {
    "visit": V, "epoch": 5, "records": 80, "length": 5200, "commitment": H64, "timers": VISIT["timers"], "bytes_sent": 5300,
    "next_key": SIGNED,
}  # fmt: skip
REFUSAL: dict[str, Any] = {"visit": V, "epoch": 5, "code": "data-missing", "detail": "The dataset is not there"}
LOSS: dict[str, Any] = {"visit": V, "holder": "hospital-a", "step": 3, "loss": 5.1}
RECEIPT: dict[str, Any] = {
    "index": 2, "visit": V, "holder": "hospital-a", "outcome": "closed", "cose": B64, "receipt": {"profile": "gput/receipt/1"},
}  # fmt: skip
HEAD: dict[str, Any] = {"size": 2, "root": H64, "signature": B64, "key": H64, "time": 1796}
LEAF: dict[str, Any] = {"index": 0, "kind": "receipt", "leaf": B64, "path": [H64]}
KEYS: dict[str, Any] = {
    "life": 1, "boot_counter": 3, "signing_key": H64, "holder": "hospital-a", "runtime_data": B64, "evidence": {"kind": "tdx-quote"},
    "gpu_evidence": {"epoch": 0},
}  # fmt: skip
ATTESTATION: dict[str, Any] = {
    "subject": "cvm:hospital-a", "life": 1, "at": 1796, "verdict": "accepted", "status": "warning", "root_set": "EMULATED",
    "backend": "EMULATED", "kind": "tdx-quote", "signing_key": H64, "token": "eyJhbGciOiJFZERTQSJ9.eyJpYXQiOjE3OTZ9.c2lnbmF0dXJl",
    "checks": [{"name": "layout", "status": "pass", "code": "", "reason": "", "expected": "", "got": "", "remedy": "", "indices": []}],
}  # fmt: skip
FETCH: dict[str, Any] = {
    "at": 1796.0, "party": "alice", "role": "owner", "fingerprint": H64, "sha256": H64, "size_bytes": 4816896,
    "bytes": 4816896, "requests": 1,
}  # fmt: skip
GPU: dict[str, Any] = {"id": "gpu-0", "backend": "EMULATED", "agent_url": "http://127.0.0.1:7001", "leased_to": S}
EVENT = (
    'id: 3000000\nevent: session\ndata: {"seq":3,"kind":"session","fact":"agreed","session":"s_mfrggzdfmztwq2lk"}\n\n'
)


def listed(item: dict[str, Any]) -> dict[str, Any]:
    """An example page."""
    return {"items": [item], "next": None}


def shows(example: Any, *codes: int, description: str = "Done.") -> dict[int | str, dict[str, Any]]:
    """OpenAPI `responses` with an example for each status code."""
    return {
        code: {"description": description, "content": {"application/json": {"example": example}}}
        for code in codes or (200,)
    }


def of(model: type[BaseModel], example: Any, code: int = 200) -> dict[int | str, dict[str, Any]]:
    """OpenAPI `responses` of a route that makes its answer itself: of this shape."""
    return {code: {**shows(example, code)[code], "model": model}}


def binary(media_type: str, description: str, example: str = "(bytes)") -> dict[int | str, dict[str, Any]]:
    """OpenAPI `responses` of raw bytes."""
    schema = {"type": "string", "format": "binary"}
    return {200: {"description": description, "content": {media_type: {"schema": schema, "example": example}}}}


def stream(description: str, example: str) -> dict[int | str, dict[str, Any]]:
    """OpenAPI `responses` of server-sent events; `itemSchema` (OpenAPI 3.2) is of one event."""
    text = {"type": "string"}
    item = {"type": "object", "required": ["data"], "properties": {"id": text, "event": text, "data": text}}
    media = {"text/event-stream": {"itemSchema": item, "example": example}}
    over = "There is nothing after that event, and never will be: its last event is known to who asks."
    return {200: {"description": description, "content": media}, 204: {"description": over}}
