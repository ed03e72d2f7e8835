"""Docker's command line as the production test uses it: images, the compose project of each site, one-off containers. Knows no step.

Whoever may use the engine is enough: files that belong to the services' users are made and removed by containers.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.production.site import PORT

ROOT = Path(__file__).parents[2]
SERVICE, GPU = "gpu-travelling/service", "gpu-travelling/gpu"
NGINX = "nginx:1.28-bookworm"
NGINX_OF_DEBIAN = """FROM debian:bookworm-slim
RUN apt-get update && apt-get install -y --no-install-recommends nginx-light && rm -rf /var/lib/apt/lists/*
CMD ["nginx", "-g", "daemon off;"]
"""


def run(*command: str, stdin: str | None = None, environment: dict[str, str] | None = None) -> str:
    """The command's output. Raises: RuntimeError with its last words."""
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **(environment or {})}, input=stdin, text=True, capture_output=True, check=False
    )  # fmt: skip
    if done.returncode:
        words = (done.stderr or done.stdout).strip()[-3000:]
        raise RuntimeError(f"{' '.join(command)}: exit code {done.returncode}\n{words}")
    return done.stdout


def build(wheels: str) -> str:
    """Both images as the docs say, and nginx: upstream's where it is here or can be had, else Debian's. Returns nginx's image."""
    quiet = {"BUILDKIT_PROGRESS": "plain"}
    run("docker", "build", "--quiet", "--target", "service", "-t", SERVICE, ".", environment=quiet)
    context = f"wheels={wheels}"
    run("docker", "build", "--quiet", "--target", "gpu", "-t", GPU, "--build-context", context, ".", environment=quiet)
    for known in (("image", "inspect", NGINX), ("pull", "--quiet", NGINX)):
        try:
            run("docker", *known)
        except RuntimeError:
            continue
        return NGINX
    own = "gput-test/nginx"
    run("docker", "build", "--quiet", "-t", own, "-", stdin=NGINX_OF_DEBIAN, environment=quiet)
    return own


class Project:
    """One site's compose project, under a name of its own."""

    def __init__(self, name: str, folder: Path, file: str, variables: dict[str, str]) -> None:
        self.name, self._folder, self._variables = name, folder, variables
        self._files = ["-f", str(folder / file), "-f", str(folder / "emulated.yml")]

    def compose(self, *arguments: str) -> str:
        """`docker compose …` of this site. Raises: RuntimeError."""
        return run("docker", "compose", "-p", self.name, *self._files, *arguments, environment=self._variables)

    def up(self) -> None:
        """As the file's first lines say, with patience for a busy machine."""
        self.compose("up", "-d", "--wait", "--wait-timeout", "240")

    def container(self, service: str) -> str:
        """Its id, also of one that was killed."""
        return self.compose("ps", "-a", "-q", service).strip()

    def words(self) -> str:
        """The last words of its services."""
        return self.compose("logs", "--no-color", "--tail", "30")

    def down(self) -> None:
        """Remove everything of it, volumes too."""
        self.compose("down", "-v", "--timeout", "5", "--remove-orphans")


class Client:
    """The owner's machine: `gput …` in a container that reaches the orchestrators by TLS and nothing else."""

    def __init__(self, network: str, folder: Path, authority: Path, url: str) -> None:
        self._command = [
            "docker", "run", "--rm", "-i", "--network", network, "-v", f"{folder}:/client", "-w", "/client",
            "-v", f"{authority}:/usr/lib/ssl/cert.pem:ro", "-e", f"GPUT_URL={url}", "-e", "GPUT_KEY=/client/owner/owner.pem", GPU,
        ]  # fmt: skip

    def gput(self, *arguments: str) -> str:
        """`gput …`; its output. Raises: RuntimeError."""
        return self.run("gput", *arguments)

    def run(self, *command: str, stdin: str | None = None) -> str:
        """A command there; its output. Raises: RuntimeError."""
        return run(*self._command, *command, stdin=stdin)

    def write(self, name: str, text: str) -> None:
        """A file there."""
        self.run("sh", "-c", 'cat > "$0"', name, stdin=text)


def as_root(mounts: dict[Path | str, str], *command: str) -> str:
    """A one-off container that is root over these mounts, and reaches no network."""
    volumes = [part for source, target in mounts.items() for part in ("-v", f"{source}:{target}")]
    return run("docker", "run", "--rm", "-u", "0", "--network", "none", *volumes, SERVICE, *command)


def url_of(names: tuple[str, ...]) -> str:
    """The orchestrators' addresses, as clients and holders are given them."""
    return ",".join(f"https://{name}:{PORT}" for name in names)
