"""Finished runs of the scale model, gone through after the fact: one more record for each."""

from collections.abc import Callable, Sequence
from pathlib import Path

from iha.experiment.compare import is_swept
from iha.experiment.plan import KIND as RUN
from iha.records import Progress, Record, output_directory, read_record, silent, write_record


def for_each_finished(
    records: Path,
    runs: Path,
    make: Callable[[Record, Path], Record],  # from a run's record and its directory
    *,
    directory: str,  # of the new records, below the runs' records
    kind: str,  # of the new records
    title: str,
    names: Sequence[str] = (),
    wanted: str = "an export",
    has_it: Callable[[Path], bool] = lambda run: True,  # whether a run's directory has what is wanted beside its export
    progress: Progress = silent,
) -> list[Record]:
    """The runs named, or all that have what is wanted, without a sweep's. Those done before are skipped."""
    found = {path.stem: path for path in sorted(records.glob("*-s*.json")) if (runs / path.stem / "export").is_dir()}
    missing = [name for name in names if name not in found]
    if missing:
        raise ValueError(f"{missing[0]}: no record in {records}, or no export in {runs}")
    chosen = list(names) or [name for name in found if not is_swept(name) and has_it(runs / name)]
    if not chosen:
        raise ValueError(f"no run of {records} has {wanted} in {runs}")
    into = output_directory(records / directory)
    done = []
    with progress.task(title, total=len(chosen)) as task:
        for name in chosen:
            path = into / f"{name}.json"
            if not path.exists():
                write_record(path, make(read_record(found[name], RUN), runs / name))
            done.append(read_record(path, kind))
            task.advance(1, note=name)
    return done
