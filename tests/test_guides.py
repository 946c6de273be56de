"""The Python of the guides runs as printed, page by page, with its own imports; a tiny Llama is in the 8B's place."""

import ast
import builtins
import re
from pathlib import Path

import pytest
import torch

DOCS = Path(__file__).parent.parent / "docs"
PAGES = sorted(page.name for page in DOCS.glob("*.md") if "```python" in page.read_text(encoding="utf-8"))
SLOW = {"fine-tuning.md"}
# Checked for their names only: they compile a model.
NOT_RUN = ("cache_implementation=",)
CHECKPOINTS = ('"meta-llama/Llama-3.1-8B"', '"SRC"')


def snippets(page: str) -> list[str]:
    text = (DOCS / page).read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=128, bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    directory = tmp_path_factory.mktemp("llama")
    LlamaForCausalLM(config).save_pretrained(directory)
    return directory


def unknown_names(code: str, known: set[str]) -> set[str]:
    """Names that are read but neither known nor made by the code."""
    nodes = list(ast.walk(ast.parse(code)))
    made = {node.id for node in nodes if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
    made |= {(alias.asname or alias.name).split(".")[0] for n in nodes if isinstance(n, ast.Import | ast.ImportFrom)
             for alias in n.names}  # fmt: skip
    read = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    return read - made - known - set(dir(builtins))


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=[pytest.mark.slow] if page in SLOW else []) for page in PAGES]
)
def test_snippets_run_in_order(page, checkpoint, tmp_path, monkeypatch):
    if page == "fine-tuning.md":
        pytest.importorskip("peft")
    monkeypatch.chdir(tmp_path)
    names: dict = {"__name__": page}
    for code in snippets(page):
        for source in CHECKPOINTS:
            code = code.replace(source, repr(str(checkpoint)))
        if any(word in code for word in NOT_RUN):
            assert unknown_names(code, set(names)) == set()
        else:
            exec(compile(code, page, "exec"), names)


def test_a_missing_import_is_found():
    assert unknown_names("x = torch.ones(3)\nprint(x)", set()) == {"torch"}
