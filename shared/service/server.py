"""Running a service as a process: socket, signals, the one ready line, exit codes. Knows no route.

The socket is bound before the application is built, so that a busy port is said at once and the application knows its address. SIGTERM
and SIGINT stop it: waiting requests end at once, running ones get `shutdown_deadline_s`, then the rest is cancelled.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ctypes
import errno
import json
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import uvicorn
from fastapi import FastAPI

from shared.core_files import leave_no_core
from shared.errors import ConfigurationError, GputError
from shared.service.backup import back_up
from shared.service.connection import guarded
from shared.service.cycles import leave_out_what_is_there
from shared.service.data_dir import held
from shared.service.logging import configure_logging, get_logger
from shared.service.settings import ServiceSettings
from shared.service.state import service_state

S = TypeVar("S", bound=ServiceSettings)
Factory = Callable[[S, str], FastAPI]
Ready = Callable[[], Mapping[str, Any]]
Act = Callable[[S], Mapping[str, Any]]

BACKLOG = 1024
KEEP_ALIVE_S = 75
PR_SET_PDEATHSIG = 1  # linux/prctl.h
_PARENT = os.getppid()

_log = get_logger("server")


def service_main(
    settings_type: type[S], factory: Factory[S], argv: Sequence[str] | None = None, *, ready: Ready | None = None,
    go_back: Callable[[S, str], None] | None = None, variants: Mapping[str, tuple[str, Factory[S]]] | None = None,
    acts: Mapping[str, tuple[str, Act[S]]] | None = None,
) -> int:  # fmt: skip
    """The `main` of a service: `--config FILE`, settings, logging, `serve`. Returns the exit code (that of the error's family).

    Args:
        go_back: takes the database of this service, which does not run, to an older schema; offered as `--schema REVISION`.
        variants: what `--NAME` means, and the factory that it puts in place of the usual one.
        acts: what `--NAME` means, and what it does instead of serving, while the service does not run; its answer is printed as JSON.
    """
    parser = _parser(settings_type, go_back is not None, acts or {})
    for name, (meaning, variant) in (variants or {}).items():
        parser.add_argument(
            f"--{name}", action="store_const", const=variant, dest="factory", default=factory, help=meaning
        )
    arguments = parser.parse_args(argv)
    try:
        leave_no_core()
        settings = settings_type.load(arguments.config)
        configure_logging(settings.log_level, settings.log_format, always=settings.log_context())
        if _acted(arguments, settings, go_back):
            return 0
        return serve(getattr(arguments, "factory", factory), settings, ready=ready)
    except GputError as error:
        print(f"error: {error.detail}", file=sys.stderr)
        if error.remedy:
            print(f"remedy: {error.remedy}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:  # before the server took over the signals
        return 130
    except OSError as error:
        if error.filename is None:
            _log.error("the service broke", exc_info=error)
            return GputError.exit_code
        print(f"error: {error.filename}: {error.strerror}", file=sys.stderr)
        print("remedy: Check that path, its owner and rights, and the space on its volume.", file=sys.stderr)
        return ConfigurationError.exit_code
    except Exception as error:
        _log.error("the service broke", exc_info=error)
        return GputError.exit_code


def _acted(arguments: argparse.Namespace, settings: S, go_back: Callable[[S, str], None] | None) -> bool:
    """Do what was asked for instead of serving; False: nothing was."""
    if arguments.backup is not None:
        print(json.dumps({"backup": str(arguments.backup), "files": back_up(settings, arguments.backup)}))
    elif go_back is not None and arguments.schema is not None:
        with held(settings.data_dir):
            go_back(settings, arguments.schema)
    elif arguments.act is not None:
        with held(settings.data_dir):
            print(json.dumps(arguments.act(settings)))
    else:
        return False
    return True


def _parser(
    settings_type: type[ServiceSettings], goes_back: bool, acts: Mapping[str, tuple[str, Act[Any]]]
) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(settings_type.__doc__ or "").split("\n")[0])
    parser.add_argument("--config", type=Path, help="TOML file of settings; the environment overrides it")
    copied = "copy database and files to a new folder, also while it runs, and end"
    parser.add_argument("--backup", metavar="DIR", type=Path, help=copied)
    if goes_back:
        older = "take the database back to this schema, for an older version of the program, and end; serves nothing"
        parser.add_argument("--schema", metavar="REVISION", help=older)
    parser.set_defaults(act=None)
    for name, (meaning, act) in acts.items():
        parser.add_argument(f"--{name}", action="store_const", const=act, dest="act", help=meaning)
    return parser


def serve(factory: Factory[S], settings: S, *, ready: Ready | None = None) -> int:
    """Runs the application of `factory(settings, base_url)` until a signal; 0 after a clean stop.

    Prints one JSON line on stdout when requests are accepted: {"ready": base_url, …ready()}.

    Raises:
        ConfigurationError: code `port-in-use` and others of the settings. GputError: what start-up met.
    """
    if settings.die_with_parent:
        die_with_parent()
    with bind(settings.host, settings.port) as listener, held(settings.data_dir):
        base_url = _address(listener)
        app = factory(settings, base_url)
        config = uvicorn.Config(
            app,
            http=guarded(unparsed=service_state(app).unparsed),
            lifespan="off",  # run below, so that its errors keep their type
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,  # anybody could write them
            ws="none",
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=max(1, round(settings.shutdown_deadline_s)),
        )
        server = _Server(config, app, lambda: _print_ready(base_url, ready))
        with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
            runner.run(_run(server, app, listener))
    return 0


async def _run(server: _Server, app: FastAPI, listener: socket.socket) -> None:
    async with app.router.lifespan_context(app):
        await server.serve(sockets=[listener])


class _Server(uvicorn.Server):
    """Uvicorn that says when it listens, wakes waiting requests at a stop, and ends with code 0 after a signal."""

    def __init__(self, config: uvicorn.Config, app: FastAPI, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._app = app
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        leave_out_what_is_there()
        self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        service_state(self._app).stopping.set()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        # As the base class, but without raising the signal again afterwards: a stop asked for is a success.
        before = {number: signal.signal(number, self._stop) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _stop(self, number: int, _frame: FrameType | None) -> None:
        self.force_exit = self.should_exit and number == signal.SIGINT
        self.should_exit = True


def _print_ready(base_url: str, ready: Ready | None) -> None:
    print(json.dumps({"ready": base_url, **(ready() if ready is not None else {})}), flush=True)


def bind(host: str, port: int) -> socket.socket:
    """A listening TCP socket.

    Raises:
        ConfigurationError: codes `port-in-use`, `address-unusable`.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise ConfigurationError(
                f"port {port} on {host} is in use",
                code="port-in-use",
                remedy="Stop the other program, or choose another port by the setting port (0 takes a free one).",
            ) from None
        raise ConfigurationError(
            f"cannot listen on {host}:{port}: {error.strerror}",
            code="address-unusable",
            remedy="Name an address of this machine by the setting host, and a port above 1023.",
        ) from None
    return listener


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 (the wildcard is read here, not chosen)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def die_with_parent() -> None:
    """This process gets SIGTERM when the thread that started it ends (Linux `prctl(2)`).

    Raises:
        ConfigurationError: not on Linux. SystemExit: the parent is gone already.
    """
    if not sys.platform.startswith("linux"):
        raise ConfigurationError("die_with_parent works on Linux only", remedy="Leave the setting die_with_parent off.")
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0) != 0:
        raise ConfigurationError(
            f"prctl failed: {os.strerror(ctypes.get_errno())}", remedy="Leave die_with_parent off."
        )
    if os.getppid() != _PARENT:  # it ended between our start and the call
        raise SystemExit(0)
