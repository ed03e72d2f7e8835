"""Workers that wait on a device: made when the agent says so, kept while what they hold is nobody's, and dropped where that is in doubt."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from gpu_agent.compute import __main__ as parents
from gpu_agent.compute.planned import by_default
from tests.gpu.compute_parent import DEVICE, DIGEST, Agent
from tests.gpu.gpu_world import manifest


def test_on_a_device_nothing_is_forked_before_the_agent_says_so(forks: list[int]) -> None:
    agent = Agent(DEVICE)
    agent.launch()
    agent.say(op="destroy", keep=True)
    assert (len(forks), agent.parent._left()) == (1, None)
    assert agent.heard() == [{"op": "destroyed", "launch": 1}, {"op": "quiet", "waiting": 0}]


def test_on_a_device_the_next_worker_is_forked_while_one_trains_and_outlives_it(
    forks: list[int], warm: list[int]
) -> None:
    agent = Agent(DEVICE)
    agent.launch(beside=1)
    assert len(forks) == 2
    os.write(warm[1], b"1")
    agent.say(op="rest")
    agent.say(op="destroy", keep=True)
    assert [Path(f"/proc/{pid}").exists() for pid in forks] == [False, True], "the one that trained died"
    agent.launch()
    assert len(forks) == 2, "the launch found the one that waited"
    told = [one for one in agent.heard() if one["op"] != "destroyed"]
    assert told == [{"op": "resting", "waiting": 1}, {"op": "quiet", "waiting": 1}]


def test_on_a_device_several_are_forked_beside_one_launch_and_used_up_by_the_next(
    forks: list[int], warm: list[int]
) -> None:
    agent = Agent(DEVICE)
    agent.launch(beside=3)
    assert len(forks) == 4
    for end in warm[1:]:
        os.write(end, b"1")
    for left in (3, 2, 1):
        agent.say(op="destroy", keep=True)
        assert agent.heard()[-1] == {"op": "quiet", "waiting": left}
        agent.launch(beside=left - 1)
        running = agent.parent._running
        assert running is not None
        assert running.pid == forks[4 - left], "the oldest first"
    assert len(forks) == 4
    agent.launch(beside=2)
    assert len(forks) == 7, "one for the launch, for none waited, and two beside it"


def test_on_a_device_who_is_not_ready_in_time_is_dropped_and_the_others_stay(
    forks: list[int], warm: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parents, "_WARM_DEADLINE_S", 0.1)
    agent = Agent(DEVICE)
    agent.launch(beside=3)
    for end in (warm[1], warm[3]):
        os.write(end, b"1")
    agent.say(op="destroy", keep=True)
    assert agent.heard()[-1] == {"op": "quiet", "waiting": 2}
    assert agent.waited[0] >= 0.1
    assert [Path(f"/proc/{pid}").exists() for pid in forks] == [False, True, False, True]
    os.kill(forks[1], signal.SIGKILL)
    agent.parent._buried(agent.parent._spares[0])
    agent.say(op="rest")
    assert agent.heard() == [{"op": "resting", "waiting": 1}]
    agent.say(op="drop")
    assert [Path(f"/proc/{pid}").exists() for pid in forks] == [False] * 4


def test_workers_of_another_program_make_way_for_those_of_the_next(forks: list[int], warm: list[int]) -> None:
    agent, other = Agent(DEVICE), "cd" * 32
    agent.parent._programs[other], agent.parent._planned[other] = agent.parent._programs[DIGEST], by_default(manifest())
    agent.launch(beside=2)
    for end in warm[1:]:
        os.write(end, b"1")
    agent.say(op="destroy", keep=True)
    agent.say(op="prepare", code_digest=other)
    assert [Path(f"/proc/{pid}").exists() for pid in forks] == [False, False, False, True]


@pytest.mark.parametrize("why", ["not to be kept", "never warm", "dead"])
def test_on_a_device_who_may_hold_what_a_training_gave_back_dies_with_it(
    forks: list[int], warm: list[int], monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    monkeypatch.setattr(parents, "_WARM_DEADLINE_S", 0.05)
    agent = Agent(DEVICE)
    agent.launch(beside=1)
    if why == "not to be kept":
        os.write(warm[1], b"1")
    if why == "dead":
        os.kill(forks[1], signal.SIGKILL)
    agent.say(op="destroy", keep=why != "not to be kept")
    assert agent.heard()[-1] == {"op": "quiet", "waiting": 0}
    assert [Path(f"/proc/{pid}").exists() for pid in forks] == [False, False]
