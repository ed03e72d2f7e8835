"""Commands that the docs show and no test here executes, each with its reason. Short on purpose: what can run belongs on a page that runs.

A command counts as executed where its page runs (`RUNS`), or where a page that runs has the same command with other operands. Every
other one must begin with the words of an entry here, and every entry must still be needed. All of them are parsed in any case.
"""

from __future__ import annotations

RUNS: tuple[str, ...] = (
    "docs/tutorial.md", "docs/how-to/ml-engineer.md", "docs/how-to/operator.md", "docs/how-to/platform.md", "docs/how-to/researcher.md",
)  # fmt: skip
"""Pages whose shell blocks are executed in this order, in one folder and one shell (`test_pages_run.py`)."""

LEFT_OUT: dict[str, str] = {
    "make": "makes the environment that the tests run in, or runs the tests themselves; CI runs `make test` on a clean clone",
    "docker": "needs a container engine; CI runs the compose file for real (.ci/compose-smoke)",
    "gput demo": "has tests of its own, interruptions and every attack included (tests/gput)",
    "gput attest": "is run over samples of every kind by tests/gput/test_attest_command.py; readers bring evidence of their own",
    "gput bench": "measures for minutes; each bench has a test of its own on a small job",
    "gput completion": "is asked by a real shell in tests/gput/test_cli_manners.py",
    "gput config show": "has every origin of a setting in tests/gput/test_cli_config.py",
    "gput smoke": "starts services for half a minute; tests/world/test_world_commands.py runs it on a world's",
    "gput session": "each verb that no page runs is run by hand in tests/world, or in tests/gput/test_tracking.py",
    "gput party": "each verb that no page runs is run in tests/gput/test_gput_commands.py and tests/world/test_world_commands.py",
    "gput program": "llm.c's files come from readers; tests/workload takes them in and out",
    "python -m docs": "writes pages; that they are current is a test (tests/architecture)",
    "python -m data_holder": "an installation's own files; tests/world/test_world_backup.py makes and restores copies",
    "python -m orchestrator": "an installation's own files; tests/orchestrator and tests/failures take schemas back and forth",
}

UNPARSED: dict[str, str] = {
    "gput bench NAME": "stands for any bench",
}
