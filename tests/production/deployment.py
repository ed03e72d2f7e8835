"""One production deployment from its files: hardware made, the orchestrator's site up, each holder's site up, everything removed again.

Knows where files go and whose they are; drives no session.
"""

from __future__ import annotations

import os
from pathlib import Path

from tests.production.engine import GPU, SERVICE, Client, Project, as_root, url_of
from tests.production.site import NAMES, PARTS, PORT, Site

UID = "10001:10001"
SECRETS = {
    "database-password": ("999:10001", "440"), "recovery.key": (UID, "400"),
    "tls-certificate.pem": ("101:101", "400"), "tls-key.pem": ("101:101", "400"),
}  # fmt: skip
"""Whose each secret is, as deploy/compose/README.md says."""


class Deployment:
    """Projects in the order in which they came up; the first is the orchestrator's."""

    def __init__(self, folder: Path, nginx: str) -> None:
        self.name = f"gput-production-{os.getpid()}"
        self.site, self._nginx, self.projects = Site(folder), nginx, list[Project]()
        self.outside = f"{self.name}_outside"

    def manufacture(self) -> None:
        """Emulated hardware, keys and trust folder, made by the code of the image, which they measure."""
        self.site.begin()
        mounts: dict[Path | str, str] = {self.site.folder / "installation": "/installation"}
        mounts |= {self.site.emulated / part: f"/volumes/{part}" for part in PARTS}
        as_root(mounts, "python", "-m", "gput.local.compose", "prepare")
        self._give(self.site.emulated, f"{os.getuid()}:{os.getgid()}")

    def orchestrator(self) -> Project:
        """The orchestrator's site, with the emulated agent and platform beside it."""
        folder = self.site.orchestrator()
        self._secrets(folder)
        for service in (folder / "cvms", self.site.emulated / "agent", self.site.emulated / "platform"):
            self._give(service, UID)
        # The emulated platform obeys the identity that was made with the hardware; a cloud's is told which to obey.
        as_root(
            {f"{self.name}_shared": "/var/lib/gput/shared", self.site.emulated / "orchestrator": "/given"},
            "install", "-o", "10001", "-g", "10001", "-m", "600", "/given/state/identity.pem", "/var/lib/gput/shared/",
        )  # fmt: skip
        public = zip(("GPUT_PUBLIC_URL_A", "GPUT_PUBLIC_URL_B"), NAMES, strict=True)
        return self._up(self.name, folder, "orchestrator.yml", {
            **{variable: f"https://{name}:{PORT}" for variable, name in public},
            "GPUT_IMAGE": SERVICE, "GPUT_GPU_IMAGE": GPU, "GPUT_NGINX_IMAGE": self._nginx, "GPUT_LISTEN": "127.0.0.1:0",
            "GPUT_EMULATED": str(self.site.emulated),
        })  # fmt: skip

    def holder(self, name: str) -> Project:
        """A holder's site."""
        folder = self.site.holder(name)
        self._secrets(folder)
        self._give(folder / "cvms", UID)
        variables = {"GPUT_IMAGE": SERVICE, "GPUT_OUTSIDE": self.outside, "GPUT_OPERATOR_PORT": "0"}
        return self._up(f"{self.name}-{name}", folder, "holder.yml", variables)

    def client(self) -> Client:
        """The owner's machine."""
        folder = self.site.emulated / "client"
        self._give(folder, UID)
        return Client(self.outside, folder, self.site.authority, url_of(NAMES))

    def down(self) -> None:
        """Remove containers, networks and volumes, those that came last first, and the files of the services' users."""
        for project in reversed(self.projects):
            project.down()
        self._give(self.site.folder, f"{os.getuid()}:{os.getgid()}")

    def words(self) -> str:
        """The last words of everybody."""
        return "\n".join(project.words() for project in self.projects)

    def _up(self, name: str, folder: Path, file: str, variables: dict[str, str]) -> Project:
        project = Project(name, folder, file, variables)
        self.projects.append(project)
        project.up()
        return project

    def _secrets(self, folder: Path) -> None:
        for path in (folder / "secrets").iterdir():
            owner, mode = SECRETS[path.name]
            as_root({path: "/secret"}, "sh", "-ec", f"chown {owner} /secret && chmod {mode} /secret")

    @staticmethod
    def _give(folder: Path, owner: str) -> None:
        as_root({folder: "/given"}, "chown", "-R", owner, "/given")
