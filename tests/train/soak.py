"""Kill a training run again and again; what it ends with must be what it would have ended with.

    python tests/train/soak.py --minutes 60 --out results/train/soak.json      (make soak MINUTES=60)

Every round is one run of a tiny model on one or two processes, ended by SIGKILL (sometimes of one process only) or
SIGTERM at random moments, with saves stretched so that many kills fall into one, and its newest checkpoint sometimes
truncated or changed. When the round's kills are used up it may finish, and all its tensors must be bit by bit those of
a run that nobody disturbed. The loss of every step must be there once.
"""

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import runs

STEPS = 24
PATIENCE = 1200  # seconds for a run that nobody disturbs, on a machine that may be busy


def recipe_for(directory: Path) -> "runs.Recipe":
    return runs.tiny(directory, f"schedule.steps={STEPS}", f"data.directory={directory}/data", "checkpoint.every=1")


def reference(directory: Path, world: int):
    run = directory / f"undisturbed-{world}"
    runs.completed(recipe_for(directory), run, world, PATIENCE)  # prepares the data, starts the server
    started = time.monotonic()
    runs.completed(recipe_for(directory), directory / f"timed-{world}", world, PATIENCE)
    return time.monotonic() - started, runs.weights(run), runs.metrics(run, "loss")


def disturbed(
    directory: Path, run: Path, world: int, seconds: float, kills: int, rng: random.Random, survived: Counter
) -> None:
    """One run, ended `kills` times within the time that it needs undisturbed, then left to finish."""
    recipe = recipe_for(directory)
    for _ in range(kills):
        workers = runs.start(recipe, run, world, slow_save=rng.choice([0.0, 0.05, 0.2]))
        until = time.monotonic() + rng.uniform(0, seconds)
        while time.monotonic() < until and any(worker.is_alive() for worker in workers):
            time.sleep(0.002)
        if not any(worker.is_alive() for worker in workers):
            survived["finished before the kill"] += 1
            break
        saving = bool(list((run / "checkpoints").glob(".step-*.partial"))) if run.exists() else False
        how = rng.choices(["SIGKILL", "SIGKILL of one of two", "SIGTERM"], [6, 2 if world > 1 else 0, 1])[0]
        if how == "SIGKILL of one of two":
            os.kill(rng.choice(workers).pid, signal.SIGKILL)
            time.sleep(rng.uniform(0, 0.3))
        if how == "SIGTERM":
            for worker in workers:
                os.kill(worker.pid, signal.SIGTERM)
            time.sleep(rng.uniform(0, 2))
        runs.kill(workers)
        survived[how] += 1
        survived["in the middle of a save"] += saving
        present = sorted((run / "checkpoints").glob("step-*")) if run.exists() else []
        survived["before the first checkpoint"] += not present
        if len(present) > 1 and rng.random() < 0.15:
            damage(present[-1], rng)
            survived["newest checkpoint damaged"] += 1
    runs.completed(recipe, run, world, PATIENCE)


def damage(checkpoint: Path, rng: random.Random) -> None:
    path = rng.choice(sorted(checkpoint.iterdir()))
    content = bytearray(path.read_bytes())
    if rng.random() < 0.5:
        del content[rng.randrange(len(content)) :]
    else:
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    path.write_bytes(content)


def differences(run: Path, weights, losses) -> list[str]:
    """What is not as in the undisturbed run."""
    found = runs.weights(run)
    wrong = [name for name in weights if name not in found or not bool((found[name] == weights[name]).all())]
    if runs.metrics(run, "loss") != losses:
        wrong.append("metrics.jsonl")
    return wrong


def soak(
    directory: Path, seconds: float, seed: int, kills: int | None = None, after_round=lambda results: None
) -> dict:
    """Rounds until time is up, or until so many kills."""
    rng = random.Random(seed)
    survived: Counter = Counter()
    undisturbed = {world: reference(directory, world) for world in (1, 2)}
    started, rounds, worlds = time.monotonic(), 0, Counter()
    while time.monotonic() - started < seconds and (kills is None or ends(survived) < kills):
        world = 1 + rounds % 2
        run = directory / f"round-{rounds}"
        seconds_alone, weights, losses = undisturbed[world]
        early = survived["finished before the kill"]
        disturbed(directory, run, world, seconds_alone, rng.randint(3, 8), rng, survived)
        # Kills should fall into the run, also when the machine has become faster since it was timed.
        faster = survived["finished before the kill"] > early
        undisturbed[world] = (max(1.0, seconds_alone * (0.6 if faster else 1.1)), weights, losses)
        wrong = differences(run, weights, losses)
        assert not wrong, f"round {rounds}, {world} processes: {wrong}; kept in {run}\n{runs.output(run)}"
        rounds += 1
        worlds[f"{world} process{'es' if world > 1 else ''}"] += 1
        results = {
            "runs": rounds, "runs_by_processes": dict(worlds), "kills": ends(survived), "survived": dict(survived),
            "steps_per_run": STEPS, "runs_that_ended_otherwise": 0, "soak_seconds": round(time.monotonic() - started),
        }  # fmt: skip
        after_round(results)
    return results


def ends(survived: Counter) -> int:
    return sum(count for name, count in survived.items() if name.startswith("SIG"))


def main() -> None:
    from iha.records import Record, write_record

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    config = {"minutes": arguments.minutes, "recipe": runs.TINY}
    command = f"make soak MINUTES={arguments.minutes:g}"
    record = Record.new("train-soak", command=command, config=config, seed=arguments.seed)

    def after_round(results: dict) -> None:
        print(f"{results['soak_seconds']:6d} s: {results['runs']} runs, {results['kills']} kills", flush=True)
        if arguments.out:
            arguments.out.parent.mkdir(parents=True, exist_ok=True)
            write_record(arguments.out, record.finished(results))

    directory = Path(tempfile.mkdtemp())  # removed only if all is well
    results = soak(directory, 60 * arguments.minutes, arguments.seed, after_round=after_round)
    shutil.rmtree(directory)
    for name, value in results.items():
        print(f"{name}: {value}")


if __name__ == "__main__":
    main()
