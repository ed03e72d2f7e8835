"""The holder's SQL: what its operator lists. Decisions read the journal, never these rows (storage is hostile)."""
