"""How many of transformers' own model and generation tests pass, for each setting of attention, and for Llama beside.

    python benchmarks/hugging_face.py TESTS --out results/model/hugging_face.json [--settings Llama,Hybrid]

TESTS is a directory that holds the `tests` package of transformers (tests/models/test_hugging_face.py says how to get
it). Every setting is one pytest process, and its counts are written as soon as it has ended. Settings that the file
holds already, from the same versions and the same selection, are not run again.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree
from pathlib import Path
from typing import Any

from iha.records import Record, output_directory, read_record, write_record

KIND = "hugging-face-tests"
FILE = Path(__file__).parent.parent / "tests" / "models" / "test_hugging_face.py"
SETTINGS = ("Llama", "Hybrid", "Everywhere", "Global", "GlobalLocal", "TalkingHeads", "Differential")


def counts(setting: str, tests: Path, selection: str, seconds: float) -> dict[str, Any]:
    """Passed, failed and skipped tests, and the names of those that failed."""
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}",
                   f"--timeout={seconds}", "-k", f"Test{setting} and ({selection})", str(FILE)]  # fmt: skip
        result = subprocess.run(command, env={**os.environ, "IHA_TRANSFORMERS_TESTS": str(tests)}, capture_output=True)
        if not report.is_file():
            raise ValueError(f"{setting}: pytest ended with {result.returncode}: {result.stderr.decode()[-500:]}")
        return _counted(xml.etree.ElementTree.parse(report).getroot())


def _counted(root: xml.etree.ElementTree.Element) -> dict[str, Any]:
    """A test with subtests has several entries; it has failed if one of them has."""
    states: dict[str, str] = {}
    for case in root.iter("testcase"):
        kinds = {child.tag for child in case}
        state = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
        name = case.attrib["name"]
        if state == "failed" or states.get(name, "skipped") == "skipped":
            states[name] = state
    found: dict[str, Any] = {
        state: sum(s == state for s in states.values()) for state in ("passed", "failed", "skipped")
    }
    return found | {"failures": sorted(name for name, state in states.items() if state == "failed")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tests", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--settings", default=",".join(SETTINGS))
    parser.add_argument("--selection", default="test", help="a pytest expression, e.g. 'not compil'")
    parser.add_argument(
        "--seconds", type=float, default=600, help="time limit of one test; a test that exceeds it fails"
    )
    options = parser.parse_args()
    output_directory(options.out.parent)
    config = {"selection": options.selection, "seconds": options.seconds}
    command = f"python benchmarks/hugging_face.py TESTS --selection {options.selection!r} --seconds {options.seconds:g}"
    record = Record.new(KIND, command=command, config=config)
    results: dict[str, Any] = {}
    if options.out.is_file():
        before = read_record(options.out, KIND)
        if (before.config, before.versions) == (record.config, record.versions):
            results = before.results
    for setting in options.settings.split(","):
        if setting not in SETTINGS:
            raise SystemExit(f"error: --settings: {setting!r} is not one of {', '.join(SETTINGS)}")
        if setting not in results:
            results[setting] = counts(setting, options.tests, options.selection, options.seconds)
            write_record(options.out, record.finished(results))
        found = results[setting]
        print(f"{setting}: {found['passed']} passed, {found['failed']} failed, {found['skipped']} skipped")


if __name__ == "__main__":
    main()
