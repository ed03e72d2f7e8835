"""Runs an installation of all services on this machine, each in its own process. Knows their command lines only."""
