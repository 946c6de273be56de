"""One stage of the main job: an `iha` command, on one process or under torchrun."""

import sys
from dataclasses import dataclass

RENDEZVOUS = ("--rdzv-backend", "c10d", "--rdzv-endpoint", "HEAD_NODE:29500")


@dataclass(frozen=True)
class Stage:
    name: str  # of its directory and its log
    title: str
    arguments: tuple[str, ...]  # of `iha`
    minutes: float  # approximate, on two cores; to estimate the remaining time
    needs: tuple[str, ...] = ()  # stages that it needs
    processes: int = 1  # per node; more than one: under torchrun
    nodes: int = 1

    @property
    def command(self) -> str:
        """What to type."""
        return " ".join([*(("torchrun", *self._launch, "-m") if self._launch else ()), "iha", *self.arguments])

    @property
    def argv(self) -> list[str]:
        """The same for `subprocess`, with this Python. Only for one node: others have to be started there."""
        if self.nodes > 1:
            raise ValueError(f"{self.name} runs on {self.nodes} nodes: start it on each of them")
        torchrun = ("torch.distributed.run", *self._launch, "-m") if self._launch else ()
        return [sys.executable, "-m", *torchrun, "iha", *self.arguments]

    @property
    def _launch(self) -> tuple[str, ...]:
        """Options of torchrun; empty: without it."""
        if self.nodes > 1:
            return ("--nnodes", str(self.nodes), "--nproc-per-node", str(self.processes), *RENDEZVOUS)
        return ("--standalone", "--nproc-per-node", str(self.processes)) if self.processes > 1 else ()
