"""How many of transformers' own model and generation tests pass, for each setting of attention, and for Llama beside.

    python benchmarks/hugging_face.py TESTS --reports DIR --out results/model/hugging_face.json

TESTS is a directory that holds the `tests` package of transformers (tests/models/test_hugging_face.py says how to get
it). The tests of a setting, those called slow there included, are run in four parts, each one pytest process:
plain, exported, compiled (torch.compile) and distributed (FSDP and tensor parallelism on two processes). The JUnit
report of a part stays in DIR, and a part whose report is there is not run again, so that an interrupted count can go
on. With --again the tests that failed are run once more: what they give then replaces what they gave, and the record
names them (`again`). Parts that the record in --out has when DIR is still empty are kept as they were counted
(`earlier` says at which commit), so that missing parts can be added on another machine.

`refused` are tests of what the model refuses on purpose (test_refused_..., which pass if they meet that refusal); they
are not among `passed`. `reasons` gives the first line of every failure's error, `skips` how many were skipped for which
reason, `seconds` how long the tests ran (the record's own seconds are of this call alone).
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree
from collections import Counter
from pathlib import Path
from typing import Any

from iha.records import Record, output_directory, read_record, write_record

KIND, EARLIER = "hugging-face-tests", "earlier.json"
FILE = Path(__file__).parent.parent / "tests" / "models" / "test_hugging_face.py"
SETTINGS = ("Llama", "Hybrid", "Everywhere", "Global", "GlobalLocal", "TalkingHeads", "Differential")
PARTS = {  # as pytest's -k, which looks at names and marks
    "plain": "not (compil or export or fsdp or _tp_)",
    "exported": "export and not (compil or fsdp or _tp_)",
    "compiled": "compil and not (fsdp or _tp_)",
    "distributed": "fsdp or _tp_",
}


def run(setting: str, tests: Path, report: Path, selection: str, seconds: float) -> None:
    """pytest's report of some tests of a setting; it appears when all of them have ended."""
    unfinished = report.with_suffix(".unfinished")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={unfinished}",
               f"--timeout={seconds}", "-k", selection, f"{FILE}::Test{setting}"]  # fmt: skip
    environment = {**os.environ, "IHA_TRANSFORMERS_TESTS": str(tests), "RUN_SLOW": "1"}
    result = subprocess.run(command, env=environment, capture_output=True)
    if not unfinished.is_file():
        raise ValueError(f"{setting}: pytest ended with {result.returncode}: {result.stderr.decode()[-500:]}")
    unfinished.rename(report)


def counted(setting: str, reports: Path) -> dict[str, Any]:
    """What the reports of a setting say together, and which parts of it have been run."""
    states: dict[str, str] = {}
    reasons: dict[str, str] = {}
    parts = [part for part in PARTS if (reports / f"{setting}.{part}.xml").is_file()]
    seconds = 0.0
    for part in parts:
        suites = xml.etree.ElementTree.parse(reports / f"{setting}.{part}.xml").getroot().iter("testsuite")
        seconds += sum(float(suite.attrib["time"]) for suite in suites)
        for known, new in zip((states, reasons), _states(reports / f"{setting}.{part}.xml"), strict=True):
            known |= new
    if (again := reports / f"{setting}.again.xml").is_file():
        later = _states(again)
        return _summary(states | later[0], reasons | later[1]) | {
            "parts": parts,
            "seconds": round(seconds),
            "again": sorted(later[0]),
        }
    return _summary(states, reasons) | {"parts": parts, "seconds": round(seconds)}


def joined(before: dict[str, Any], commit: str | None, now: dict[str, Any]) -> dict[str, Any]:
    """What a record made at `commit` says of a setting, and what was counted now of other parts of it.

    No test is in two parts, so their numbers add up. A part that both have can only be replaced with all others.
    """
    if set(before["parts"]) <= set(now["parts"]):
        return now
    if both := sorted({*before["parts"]} & {*now["parts"]}):
        raise ValueError(f"{', '.join(both)}: already counted with {', '.join(before['parts'])}; run all of these")
    parts = [part for part in PARTS if part in {*before["parts"], *now["parts"]}]
    earlier = {**dict.fromkeys(before["parts"], commit), **before.get("earlier", {})}
    return {
        **{key: before[key] + now[key] for key in ("passed", "failed", "skipped", "seconds")},
        **{key: sorted(before[key] + now[key]) for key in ("failures", "refused")},
        "reasons": before["reasons"] | now["reasons"],
        "skips": dict((Counter(before["skips"]) + Counter(now["skips"])).most_common()),
        "parts": parts,
        "again": sorted({*before.get("again", ()), *now.get("again", ())}),
        "earlier": {part: earlier[part] for part in parts if part in earlier},
    }


def _states(report: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Of every test: passed, failed or skipped, and why. One with subtests has failed if one of them has."""
    states: dict[str, str] = {}
    reasons: dict[str, str] = {}
    for case in xml.etree.ElementTree.parse(report).getroot().iter("testcase"):
        name, children = case.attrib["name"], {child.tag: child for child in case}
        problem = children.get("failure", children.get("error"))
        if problem is not None:
            states[name], reasons[name] = "failed", _reason(problem)
        elif states.get(name, "skipped") == "skipped":
            states[name] = "skipped" if "skipped" in children else "passed"
            if states[name] == "skipped":
                reasons[name] = _reason(children["skipped"])
    return states, reasons


def _summary(states: dict[str, str], reasons: dict[str, str]) -> dict[str, Any]:
    refused = [name for name, state in states.items() if state == "passed" and name.startswith("test_refused_")]
    by_state = {state: sorted(n for n, s in states.items() if s == state) for state in ("passed", "failed", "skipped")}
    return {
        "passed": len(by_state["passed"]) - len(refused),
        "failed": len(by_state["failed"]),
        "skipped": len(by_state["skipped"]),
        "failures": by_state["failed"],
        "reasons": {name: reasons[name] for name in by_state["failed"]},
        "refused": sorted(name.replace("test_refused_", "test_", 1) for name in refused),
        "skips": dict(Counter(reasons[name] for name in by_state["skipped"]).most_common()),
    }


def _reason(problem: xml.etree.ElementTree.Element) -> str:
    """The first line of the message, without what is of one test, one run or one machine."""
    line = (problem.attrib.get("message", "").strip().splitlines() or [""])[0]
    line = re.sub(r"^Test\w+::\w+ is skipped: ", "", line)
    line = re.sub(r"`[a-z-]+` is not in `self.pipeline_model_mapping`.*", "a pipeline of another task", line)
    line = re.sub(r"tiny models JSON file for `[a-z-]+`", "tiny models JSON file", line)
    return re.sub(r"(/[\w.+-]+){2,}", "PATH", line)[:300]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tests", type=Path)
    parser.add_argument("--reports", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--settings", default=",".join(SETTINGS))
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument(
        "--seconds", type=float, default=1800, help="time limit of one test; a test that exceeds it fails"
    )
    parser.add_argument("--again", action="store_true", help="run the tests that failed once more")
    options = parser.parse_args()
    settings, parts = options.settings.split(","), options.parts.split(",")
    for option, words, known in (("settings", settings, SETTINGS), ("parts", parts, PARTS)):
        if wrong := [word for word in words if word not in known]:
            raise SystemExit(f"error: --{option}: {wrong[0]!r} is not one of {', '.join(known)}")
    output_directory(options.out.parent)
    tests, reports = options.tests.resolve(), output_directory(options.reports).resolve()
    command = f"python benchmarks/hugging_face.py TESTS --reports DIR --seconds {options.seconds:g}"
    record = Record.new(KIND, command=command, config={"seconds": options.seconds})

    if options.out.is_file() and not any(reports.iterdir()):  # what this count begins with, however often it goes on
        shutil.copyfile(options.out, reports / EARLIER)
    kept = read_record(reports / EARLIER, KIND) if (reports / EARLIER).is_file() else None

    def count() -> dict[str, Any]:
        """What the reports say; the record has what was counted earlier, too."""
        results = {setting: counted(setting, reports) for setting in SETTINGS}
        results = {setting: found for setting, found in results.items() if found["parts"]}
        whole = dict(results)
        for setting, before in (kept.results if kept is not None else {}).items():
            whole[setting] = joined(before, kept.commit, results[setting]) if setting in results else before
        write_record(options.out, record.finished({name: whole[name] for name in SETTINGS if name in whole}))
        return results

    for part in parts:  # the cheapest of all settings first
        for setting in settings:
            if not (report := reports / f"{setting}.{part}.xml").is_file():
                run(setting, tests, report, PARTS[part], options.seconds)
                count()
    if options.again:
        for setting, found in count().items():
            if failed := sorted({*found["failures"], *found.get("again", ())}):
                run(setting, tests, reports / f"{setting}.again.xml", " or ".join(failed), options.seconds)
    for setting, found in count().items():
        print(f"{setting}: {found['passed']} passed, {found['failed']} failed, {found['skipped']} skipped")


if __name__ == "__main__":
    main()
