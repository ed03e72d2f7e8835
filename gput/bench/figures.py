"""What each bench's figures are: unit, better direction, how much of one run is noise. A table; knows no bench's code and no file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from types import MappingProxyType

from gput.bench.result import Figure

NOISE = 0.1


class Better(StrEnum):
    """Which way a figure is better; `neither` is shown and not judged."""

    LOWER = "lower"
    HIGHER = "higher"
    NEITHER = "neither"


@dataclass(frozen=True)
class Definition:
    """The figures whose names match `pattern` (as file names do; the first that matches counts).

    `noise`: the share by which two runs of the same may differ; it counts where too few runs show their own spread. `plotted`: drawn as a
    bar beside the others of its unit.
    """

    pattern: str
    unit: str
    meaning: str
    better: Better = Better.LOWER
    noise: float = NOISE
    plotted: bool = False


@dataclass(frozen=True)
class Bench:
    """One bench: what it measures, whether with PyTorch, its figures, and how it is called where it is no `gput bench NAME`."""

    about: str
    pytorch: bool
    definitions: tuple[Definition, ...]
    command: str | None = None

    def definition(self, name: str) -> Definition | None:
        """Of the figure of that name."""
        return next((one for one in self.definitions if fnmatchcase(name, one.pattern)), None)


_PER_1000 = " per 1000 visits"
_GROWTH = "change over the run, by a straight line through its windows"
_HOLDERS = "; holders' as their mean"
BENCHES: Mapping[str, Bench] = MappingProxyType({
    "visit": Bench("what a visit costs, step by step, over short visits of a 1.2 M-parameter GPT-2", True, (
        Definition("flatness", "times", "control cost of a visit with the most holders ÷ with the fewest"),
        Definition("holders-*.control.median_ms", "ms", "with so many holders, all of a visit but data and training", plotted=True),
        Definition("holders-*.overhead.median_ms", "ms", "with so many holders, all of a visit but training", plotted=True),
        Definition("holders-*.median_ms", "ms", "with so many holders, this step of a visit"),
        Definition("control.median_ms", "ms", "all of a visit but data, training and held-out check", plotted=True),
        Definition("control.p99_ms", "ms", "the same, of the slowest in a hundred", noise=0.5),
        Definition("overhead.median_ms", "ms", "all of a visit but training and held-out check: control and provision", plotted=True),
        Definition("overhead.p99_ms", "ms", "the same, of the slowest in a hundred", noise=0.5),
        Definition("limit.sync_ms", "ms", "on this machine: one durable write of a page, right after another"),
        Definition("limit.sync_idle_ms", "ms", "the same after 60 ms in which nothing was written", noise=0.5),
        Definition("limit.echo_ms", "ms", "one call of a service that does nothing, by our own client and server"),
        Definition("*.median_ms", "ms", "this step of a visit", plotted=True),
        Definition("*.p99_ms", "ms", "the same, of the slowest in a hundred", noise=0.5),
        Definition("*.rss_anon_mb", "MB", "the service's own memory (RssAnon) at the end", plotted=False),
    )),
    "lengths": Bench("what travelling costs, whatever is trained: visits of three lengths of a tiny program over large records", True, (
        Definition("control_ms", "ms", "a visit: all but data, training and held-out check", plotted=True),
        Definition("data_fixed_ms", "ms", "a visit: what its data takes, however little it is", plotted=True),
        Definition("train_fixed_ms", "ms", "a visit: what its training takes, however short", plotted=True),
        Definition("data_ns_per_byte", "ns", "a byte of records, from the holder into GPU memory", noise=0.3),
        Definition("train_step_ms", "ms", "a training step"),
    )),
    "life": Bench("whether a long session of a tiny program grows", True, (
        Definition("*_ms.last", "ms", "control cost of a visit in the last window", plotted=True),
        Definition("*_mb.last", "MB", "the service's own memory (RssAnon) at the end" + _HOLDERS, plotted=True),
        Definition("*_kb.last", "kB", "what the service's folder holds at the end" + _HOLDERS),
        Definition("*.handles.last", "files", "open files at the end" + _HOLDERS),
        Definition("*.threads.last", "threads", "threads at the end" + _HOLDERS),
        Definition("*_ms.per_1000_visits", "ms" + _PER_1000, _GROWTH, Better.NEITHER),
        Definition("*_mb.per_1000_visits", "MB" + _PER_1000, _GROWTH, Better.NEITHER),
        Definition("*_kb.per_1000_visits", "kB" + _PER_1000, _GROWTH, Better.NEITHER),
        Definition("*.handles.per_1000_visits", "files" + _PER_1000, _GROWTH, Better.NEITHER),
        Definition("*.threads.per_1000_visits", "threads" + _PER_1000, _GROWTH, Better.NEITHER),
    )),
    "training": Bench("a training step through the measured graph against plain PyTorch on the same batches", True, (
        Definition("*.ours_s", "s", "a step through the measured graph", plotted=True),
        Definition("*.plain_s", "s", "the same step in plain PyTorch", plotted=True),
        Definition("*.ratio", "times", "the one ÷ the other, median of the pairs", noise=0.03),
        Definition("*.loss_apart", "nats", "by how much the losses of a step differ at most", noise=1.0),
        Definition("*.batch", "records", "of a step", Better.NEITHER),
    )),
    "cuda": Bench("a CUDA device: GPT-2 124M, encrypted transfer into its memory, visits", True, (
        Definition("tokens_per_s", "1/s", "tokens trained on through the measured graph", Better.HIGHER, plotted=True),
        Definition("plain_tokens_per_s", "1/s", "the same in plain PyTorch on the same card", Better.HIGHER, plotted=True),
        Definition("tokens_ratio", "times", "the one ÷ the other, median of the pairs", Better.HIGHER, noise=0.03),
        Definition("loss_apart", "nats", "by how much the losses of a step differ at most", noise=1.0),
        Definition("transfer_gb_per_s", "GB/s", "records opened into the device's memory", Better.HIGHER, plotted=True),
        Definition("open_gb_per_s", "GB/s", "the same records opened into the host's: the limit", Better.HIGHER, plotted=True),
        Definition("transfer_ratio", "times", "the one ÷ the other", Better.HIGHER),
        Definition("visit.control.median_ms", "ms", "a visit of one step of the demo's model: all but data and training", plotted=True),
        Definition("visit.*.median_ms", "ms", "that step of such a visit"),
        Definition("visit.mean_ms", "ms", "all of such a visit, on average: one in four waits for workers to be made"),
        Definition("gpt2.tokens_per_s", "1/s", "GPT-2 124M in a session, whole visits counted", Better.HIGHER, plotted=True),
        Definition("gpt2.control.median_ms", "ms", "a visit of it: all but data and training", plotted=True),
        Definition("gpt2.*.median_ms", "ms", "that step of such a visit"),
        Definition("gpt2.mean_ms", "ms", "all of such a visit, on average"),
    )),
    "attest": Bench("verifying evidence of a machine", False, (
        Definition("*.warm_ms", "ms", "of a machine met again", plotted=True),
        Definition("*.met_first_ms", "ms", "of one met first, the makers' documents known", plotted=True),
        Definition("*.cold_ms", "ms", "with nothing known beforehand", plotted=True),
    )),
    "receipts": Bench("`gput receipts verify` over a session's receipts", False, (
        Definition("seconds", "s", "by the clock, with so many processes", plotted=True),
        Definition("processor_s", "s", "user and system time of all processes", plotted=True),
        Definition("signatures_s", "s", "the least it could take: the signatures alone", plotted=True),
        Definition("receipts_per_s", "1/s", "by the clock", Better.HIGHER),
        Definition("ratio", "times", "processor time ÷ that of the signatures alone"),
    )),
    "transfer": Bench("a dataset's file into GPU memory, over each link, beside the limits of cipher and server", False, (
        Definition("seal_gb_per_s", "GB/s", "one core's AES-256-GCM, 1 MiB chunks, encrypting", Better.HIGHER, plotted=True),
        Definition("open_gb_per_s", "GB/s", "the same, decrypting", Better.HIGHER, plotted=True),
        Definition("memory_gb_per_s", "GB/s", "two cores' cipher, out of memory and into memory, overlapped", Better.HIGHER, plotted=True),
        Definition("http.plain_gb_per_s", "GB/s", "the same server and client, nothing sealed or hashed", Better.HIGHER, plotted=True),
        Definition("*.moved_gb_per_s", "GB/s", "until the last record is in GPU memory, its tag verified", Better.HIGHER, plotted=True),
        Definition("*.gb_per_s", "GB/s", "until publication, everything counted", Better.HIGHER, plotted=True),
        Definition("http.moved_ratio", "times", "until the last record is in GPU memory ÷ the same server and client alone", Better.HIGHER),
        Definition("http.ratio", "times", "until publication ÷ the same", Better.HIGHER),
        Definition("http-straight.moved_ratio", "times", "all is in GPU memory ÷ the same server and client alone", Better.HIGHER),
        Definition("http-straight.ratio", "times", "until publication ÷ the same", Better.HIGHER),
        Definition("http-ahead.moved_ratio", "times", "sealed before, all is in GPU memory ÷ the same server and client", Better.HIGHER),
        Definition("http-ahead.ratio", "times", "until publication ÷ the same", Better.HIGHER),
        Definition("*.moved_ratio", "times", "until the last record is in GPU memory ÷ the slower direction of the cipher", Better.HIGHER),
        Definition("*.ratio", "times", "until publication ÷ the same", Better.HIGHER),
        Definition("*.moved_memory_ratio", "times", "the last record is in GPU memory ÷ the cipher from memory to memory", Better.HIGHER),
        Definition("*.memory_ratio", "times", "until publication ÷ the same", Better.HIGHER),
        Definition("*.processor_ns", "ns", "processor time a byte, holder and agent together"),
        Definition("*.stage_ns", "ns", "a byte, this stage alone on one core"),
    )),
    "travel": Bench("conventional data sharing against travelling, by Mbit/s between virtual machines and bytes of records", True, (
        Definition("conventional.*.s", "s", "records from holder over orchestrator into the GPU", noise=0.3),
        Definition("travelling.*.s", "s", "a visit without its training", noise=0.3),
        Definition("*.between_bytes", "B", "over the link between virtual machines, for one transfer or visit", noise=0.02),
        Definition("*.miss", "share", "what the model that was told other cells misses by", Better.NEITHER),
        Definition("ratio.*", "times", "conventional ÷ travelling", Better.HIGHER, noise=0.3),
    )),
    "ablation": Bench("what each switch of the data path is worth", True, (
        Definition("*.timeline_s", "s", "what a timeline predicts of it from the stages of the first", Better.NEITHER),
        Definition("*.visit_s", "s", "a visit without its training, by travel mode", noise=0.3, plotted=True),
        Definition("direct.chains-*.s", "s", "records into GPU memory, each of so many MAC chains", noise=0.3, plotted=True),
        Definition("*.s", "s", "records into GPU memory", noise=0.3, plotted=True),
    )),
    "checkpoint": Bench("what sealed checkpoints cost a session", True, (
        Definition("training_ratio", "times", "training time with checkpoints ÷ without"),
        Definition("session_ratio", "times", "whole sessions' time with checkpoints ÷ without"),
        Definition("share_of_training", "share", "how long sessions stood still for them ÷ how long they trained", noise=0.5),
    )),
    "peers": Bench("the same training by federated-learning frameworks and by a travelling GPU", True, (
        Definition("*.wall_s", "s", "from the first process's start to the model on disk", noise=0.2, plotted=True),
        Definition("*.prepare_s", "s", "made once before that: keys, certificates, the job's files", noise=0.5),
        Definition("*.loss", "nats", "the model's held-out loss, mean over the holders", noise=0.001, plotted=True),
        Definition("*.worst_loss", "nats", "the same of the holder whom the model serves worst", noise=0.001),
        Definition("*.kill_loss", "nats", "the same as `loss` of a run whose server was killed half-way", noise=0.001),
        Definition("*.moved_mb", "MB", "over the links between parties, every header counted", plotted=True),
        Definition("*.loopback_mb", "MB", "over all connections, those inside a party, too"),
        Definition("*.records_mb", "MB", "of that, by the session's count: holders' sealed records and their proofs"),
        Definition("*.checkpoints_mb", "MB", "of that, by the session's count: sealed checkpoints and the model, out of the GPU"),
        Definition("*.memory_mb", "MB", "own memory (RssAnon, RssShmem) of all processes, at most", plotted=True),
        Definition("*.largest_mb", "MB", "the same of the largest process"),
        Definition("*.kill_finished", "of 1", "the job finished though its server was killed half-way", Better.HIGHER),
        Definition("*.kill_s", "s", "from that kill to the model on disk", noise=0.3),
        Definition("*.kill_again", "visits", "visits, or holders' rounds, that it then had to do again", noise=0.0),
    ), command="make bench-peers"),
})  # fmt: skip


def figures(bench: str, runs: Sequence[Mapping[str, float]]) -> dict[str, Figure]:
    """What several runs of a bench found, by figure.

    Raises:
        KeyError: a figure that the bench's table does not define.
    """
    names = dict.fromkeys(name for found in runs for name in found)
    return {name: Figure(unit=_unit(bench, name), runs=_values(name, runs)) for name in names}


def _unit(bench: str, name: str) -> str:
    definition = BENCHES[bench].definition(name)
    if definition is None:
        raise KeyError(f"bench {bench} defines no figure {name}")
    return definition.unit


def _values(name: str, runs: Sequence[Mapping[str, float]]) -> tuple[float, ...]:
    return tuple(float(found[name]) for found in runs if name in found)
