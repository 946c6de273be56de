"""What the README shows, works."""

import re
from pathlib import Path

import torch

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def test_the_python_example_runs_and_says_the_truth():
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    names: dict[str, torch.Tensor] = {}
    with torch.no_grad():
        exec(code, names)  # type: ignore[arg-type]
    assert names["y"].shape == (1, 4096, 512)
    torch.testing.assert_close(names["step"], names["y"][:, 4000:4001])  # "equals y[:, 4000:4001]"
    assert names["out"].shape == (1, 4096, 8, 64)


def test_every_link_inside_the_project_leads_somewhere():
    documents = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]
    broken = [
        f"{document.name}: {target}"
        for document in documents
        for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", document.read_text())
        if "://" not in target and not (document.parent / target).exists()
    ]
    assert not broken
