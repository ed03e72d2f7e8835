"""The orchestrator's side towards data holders: inbox, attested channels, reports. Knows no GPU command."""
