"""Who leads: one orchestrator of a deployment at a time, decided in its database. Knows no session and no GPU."""
