"""RULER for the `lm_eval` command: our samples as its documents, our scores as its metrics."""

from pathlib import Path
from typing import Any


def samples(setting: str, **metadata: Any) -> dict[str, Any]:
    """The task's file gives its setting, the command the rest."""
    import datasets
    from transformers import AutoTokenizer

    from iha.evaluate.protocol import Source
    from iha.evaluate.ruler.tasks import RulerTask

    name = metadata.get("tokenizer") or metadata.get("pretrained")
    if not name:
        raise ValueError("RULER needs the model's tokenizer: --model_args pretrained=DIR, or --metadata tokenizer")
    if "length" not in metadata:
        raise ValueError("""RULER's samples have a length: --metadata '{"length": 4096}'""")
    data = metadata.get("data")
    source = Source(
        data=Path(data) if data else None,
        limit=metadata.get("samples"),
        seed=metadata.get("seed", 0),
        tokenizer=AutoTokenizer.from_pretrained(name),
    )
    questions = RulerTask(setting, metadata["length"]).questions(source)
    rows = [{"setting": setting, "prompt": q.prompt, "prefix": q.prefix, "reference": q.reference} for q in questions]
    return {"test": datasets.Dataset.from_list(rows)}


def score(doc: dict[str, Any], results: list[str]) -> dict[str, float]:
    from iha.evaluate.ruler.scoring import judge_all, judge_part
    from iha.evaluate.ruler.settings import READING_TASKS

    judge = judge_part if doc["setting"] in READING_TASKS else judge_all
    verdict = judge(results[0], doc["reference"])
    return {"ruler": verdict.score, "ruler_lm_eval": verdict.detail["lm_eval"]}
