"""All claims, one after the other, and what is written about them."""

import json
import shlex
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

from iha.records.host import describe_machine, require_bytes
from iha.theory import (
    cpm3,
    cpm3_claims,
    filter_bound,
    flop_matching,
    patterns,
    polynomial_filters,
    reported,
    strictness,
    superset,
)
from iha.theory.claims import Claim
from iha.theory.learned import Experiment, Run, plan, train_all


@dataclass(frozen=True)
class Settings:
    """What to check, at which size. `n_max` is CPM-3's, `k` that of the filter banks; None means the default set."""

    only: str | None = None
    n_max: int | None = None
    k: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.only is not None and self.only not in CHECKS:
            raise ValueError(f"unknown check {self.only!r}; known are {', '.join(CHECKS)}")
        if self.n_max is not None:
            if "cpm3" not in self.names():
                raise ValueError(f"--n-max is for cpm3 and has no meaning with --only {self.only}")
            if self.n_max < 1:
                raise ValueError(f"--n-max must be at least 1, got {self.n_max}")
            require_bytes(cpm3.bytes_needed(self.n_max), f"CPM-3 with N_max = {self.n_max}")
        if self.k is not None:
            if not {"polynomial", "bound"} & set(self.names()):
                raise ValueError(f"--k is for polynomial and bound and has no meaning with --only {self.only}")
            smallest = 1 if self.only == "polynomial" else 2  # the bound compares k with k − 1 heads
            if self.k < smallest:
                raise ValueError(f"--k must be at least {smallest}, got {self.k}")
            if "polynomial" in self.names():
                polynomial_filters.require_memory(self.k)
            if "bound" in self.names():
                filter_bound.require_memory(self.k)

    def names(self) -> tuple[str, ...]:
        return tuple(CHECKS) if self.only is None else (self.only,)

    def command(self, train: bool = False) -> str:
        parts = ["iha", "verify"]
        for flag, value in (
            ("--only", self.only),
            ("--n-max", self.n_max),
            ("--k", self.k),
            ("--seed", self.seed or None),
        ):
            parts += [] if value is None else [flag, str(value)]
        return shlex.join(parts + (["--train"] if train else []))


CHECKS: dict[str, Callable[[Settings], Iterator[Claim]]] = {
    "superset": lambda s: superset.check(s.seed),
    "strictness": lambda s: strictness.check(s.seed),
    "polynomial": lambda s: polynomial_filters.check(s.seed, s.k),
    "bound": lambda s: filter_bound.check(s.seed, s.k),
    "cpm3": lambda s: cpm3_claims.check(s.seed, s.n_max),
    "patterns": lambda s: patterns.check(s.seed),
    "flops": lambda s: flop_matching.check(s.seed),
    "tables": lambda s: reported.check(s.seed),
}


class Bar(Protocol):
    """Told what is being done, and how far it is."""

    def __call__(self, what: str, done: int, total: int) -> None: ...


def silent(what: str, done: int, total: int) -> None:
    pass


def run(settings: Settings) -> Iterator[Claim]:
    """Claims as they are decided."""
    for name in settings.names():
        yield from CHECKS[name](settings)


def collect(settings: Settings, bar: Bar = silent) -> list[Claim]:
    claims = []
    names = settings.names()
    for done, name in enumerate(names):
        bar(f"{name} …", done, len(names))
        for claim in CHECKS[name](settings):
            claims.append(claim)
            bar(f"{name}: {claim.claim}", done, len(names))
    return claims


def failures(claims: list[Claim]) -> list[Claim]:
    return [claim for claim in claims if not claim.passed]


def write(path: Path, content: dict) -> None:
    """JSON, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".tmp")
    unfinished.write_text(json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
    unfinished.replace(path)


def results(settings: Settings, claims: list[Claim], started: float) -> dict:
    return {
        "command": settings.command(),
        "seed": settings.seed,
        "seconds": round(time.perf_counter() - started, 1),
        "machine": describe_machine(),
        "failed": len(failures(claims)),
        "claims": [claim.as_json() for claim in claims],
    }


def pictures(out: Path, names: tuple[str, ...], bar: Bar = silent) -> str:
    """Draw, and say in a sentence what was drawn. The checks do without matplotlib, so its absence is no failure."""
    if find_spec("matplotlib") is None:
        return "no pictures: matplotlib is not installed (pip install 'iha[report]')"
    from iha.theory.pictures import draw

    paths = draw(out, names, bar)
    return f"{len(paths)} pictures in {out}"


def learn(settings: Settings, out: Path, bar: Bar = silent, experiments: list[Experiment] | None = None) -> list[Run]:
    """Train, write learned.json and draw it."""
    started = time.perf_counter()
    experiments = plan() if experiments is None else experiments
    runs = train_all(experiments, [settings.seed + i for i in range(4)], bar)
    content = {
        "command": settings.command(train=True),
        "seed": settings.seed,
        "seconds": round(time.perf_counter() - started, 1),
        "machine": describe_machine(),
        "runs": [r.as_json() for r in runs],
    }
    write(out / "learned.json", content)
    if find_spec("matplotlib") is not None:
        from iha.theory.learned_pictures import draw_learned

        draw_learned(out, runs)
    return runs
