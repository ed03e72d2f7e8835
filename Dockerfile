# One image for every service; the command chooses which. The GPU stage adds PyTorch, which only the agent and the client need.
# Wheels of one's own, by a build context of this name; without one none. Else the registry would be asked for an image called so.
FROM scratch AS wheels

FROM python:3.11-slim-bookworm AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python -m venv /opt/gput
WORKDIR /src
# Dependencies first, from pyproject.toml alone, so that a change of code does not install them again.
COPY pyproject.toml README.md ./
COPY docker/dependencies.py docker/
RUN --mount=type=cache,target=/root/.cache/pip python docker/dependencies.py > /tmp/requirements.txt \
    && /opt/gput/bin/pip install --quiet -r /tmp/requirements.txt
# Optional parts by name, for instance `--build-arg EXTRAS=tracing`; `--build-arg EXTRAS="tracing mlflow"` for several.
ARG EXTRAS=
RUN --mount=type=cache,target=/root/.cache/pip if [ -n "$EXTRAS" ]; then \
    python docker/dependencies.py $EXTRAS > /tmp/requirements.txt \
    && /opt/gput/bin/pip install --quiet -r /tmp/requirements.txt; fi
COPY shared shared
COPY orchestrator orchestrator
COPY data_holder data_holder
COPY gpu_agent gpu_agent
COPY gput gput
RUN --mount=type=cache,target=/root/.cache/pip /opt/gput/bin/pip install --quiet --no-deps .

FROM build AS build-gpu
# A CPU build of PyTorch: from the build context `wheels` if it holds one, else from TORCH_INDEX_URL.
ARG TORCH_INDEX_URL=https://download.pytorch.org/whl/cpu
RUN --mount=type=bind,from=wheels,target=/wheels --mount=type=cache,target=/root/.cache/pip \
    if ls /wheels/torch-*.whl >/dev/null 2>&1; then /opt/gput/bin/pip install --quiet --find-links /wheels torch==2.13.0; \
    else /opt/gput/bin/pip install --quiet --index-url "$TORCH_INDEX_URL" torch==2.13.0; fi
# Beside a real GPU the agent asks NVIDIA's library for its evidence (`evidence = "nvml:…"`).
RUN --mount=type=cache,target=/root/.cache/pip python docker/dependencies.py nvml > /tmp/requirements.txt \
    && /opt/gput/bin/pip install --quiet -r /tmp/requirements.txt

FROM python:3.11-slim-bookworm AS base
# The folders are there so that a new volume mounted over one belongs to the service's user, not to root.
RUN useradd --uid 10001 --create-home --home-dir /var/lib/gput --shell /usr/sbin/nologin gput \
    && install -d -o gput -g gput -m 0700 /var/lib/gput/state /var/lib/gput/shared
ENV PATH=/opt/gput/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER gput
WORKDIR /var/lib/gput
HEALTHCHECK --interval=2s --timeout=3s --start-period=20s --retries=15 CMD ["python", "-m", "gput.local.probe"]

FROM base AS service
COPY --from=build /opt/gput /opt/gput

FROM base AS gpu
COPY --from=build-gpu /opt/gput /opt/gput
