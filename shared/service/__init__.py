"""Service plumbing: what every service of the system needs to be one. Knows no session, visit, GPU or dataset."""
