"""The orchestrator's end of the GPU: SPDM life, command channel, placement, checkpoints, export. Knows no holder and no HTTP route."""
