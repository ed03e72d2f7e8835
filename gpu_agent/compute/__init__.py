"""Compute engines on the CPU: a warmed-up parent process that forks one worker per launch. Knows HBM bytes; no key, no holder."""
