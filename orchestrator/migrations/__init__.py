"""Schema history of the orchestrator's tables; run by `shared.service.migrations`."""
