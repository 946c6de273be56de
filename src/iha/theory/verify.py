"""All claims, one after the other, as a record."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

from iha.records import Progress, Record, silent
from iha.records.host import require_bytes
from iha.theory import (
    cpm3,
    cpm3_claims,
    filter_bound,
    flop_matching,
    patterns,
    polynomial_filters,
    pseudo_numbers,
    reported,
    strictness,
    superset,
)
from iha.theory.claims import Claim
from iha.theory.errata import errata
from iha.theory.gallery import gallery


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


CHECKS: dict[str, Callable[[Settings], Iterator[Claim]]] = {
    "superset": lambda s: superset.check(s.seed),
    "strictness": lambda s: strictness.check(s.seed),
    "polynomial": lambda s: polynomial_filters.check(s.seed, s.k),
    "bound": lambda s: filter_bound.check(s.seed, s.k),
    "cpm3": lambda s: cpm3_claims.check(s.seed, s.n_max),
    "numbers": lambda s: pseudo_numbers.check(s.seed),
    "patterns": lambda s: patterns.check(s.seed),
    "flops": lambda s: flop_matching.check(s.seed),
    "tables": lambda s: reported.check(s.seed),
}


def run(settings: Settings, progress: Progress = silent) -> list[Claim]:
    """Every claim that the settings ask for, decided."""
    claims = []
    with progress.task("checking", total=len(settings.names())) as task:
        for name in settings.names():
            for claim in CHECKS[name](settings):
                claims.append(claim)
                task.advance(0, note=f"{name}: {claim.claim}")
            task.advance(1)
    return claims


def failures(claims: list[Claim]) -> list[Claim]:
    return [claim for claim in claims if not claim.passed]


def verify(settings: Settings, command: str, progress: Progress = silent) -> Record:
    """The claims, the errata they refer to, and the numbers of the pictures."""
    record = Record.new("verify", command=command, config=asdict(settings), seed=settings.seed)
    claims = run(settings, progress)
    results = {
        "failed": len(failures(claims)),
        "claims": [claim.as_json() for claim in claims],
        "errata": [entry.as_json() for entry in errata().values()],
        "gallery": gallery(settings.names(), progress),
    }
    return record.finished(results)
