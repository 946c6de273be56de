"""The stub saved next to the weights.

With it, `from_pretrained(dir, trust_remote_code=True)` works in a process that has not imported `iha`. If `iha` is not
installed, the error says what to install.
"""

import json
import os
from pathlib import Path

_STUB = "modeling_iha.py"
AUTO_MAPS = {  # by model_type
    "iha": {
        "AutoConfig": "modeling_iha.IHAConfig",
        "AutoModel": "modeling_iha.IHAModel",
        "AutoModelForCausalLM": "modeling_iha.IHAForCausalLM",
        "AutoModelForQuestionAnswering": "modeling_iha.IHAForQuestionAnswering",
        "AutoModelForSequenceClassification": "modeling_iha.IHAForSequenceClassification",
        "AutoModelForTokenClassification": "modeling_iha.IHAForTokenClassification",
    },
    "iha_encoder": {
        "AutoConfig": "modeling_iha.IHAEncoderConfig",
        "AutoModel": "modeling_iha.IHAEncoderModel",
        "AutoModelForMaskedLM": "modeling_iha.IHAForMaskedLM",
        "AutoModelForSequenceClassification": "modeling_iha.IHAEncoderForSequenceClassification",
    },
    "iha_encoder_decoder": {
        "AutoConfig": "modeling_iha.IHAEncoderDecoderConfig",
        "AutoModel": "modeling_iha.IHAEncoderDecoderModel",
        "AutoModelForSeq2SeqLM": "modeling_iha.IHAForConditionalGeneration",
    },
    "iha_vision": {
        "AutoConfig": "modeling_iha.IHAVisionConfig",
        "AutoModel": "modeling_iha.IHAVisionModel",
        "AutoModelForImageClassification": "modeling_iha.IHAForImageClassification",
    },
}


def write_stub(directory: str | os.PathLike) -> None:
    """Add the stub to a saved model and point its config.json to it."""
    directory = Path(directory)
    config_path = directory / "config.json"
    if not config_path.exists():
        return
    config = json.loads(config_path.read_text())
    config["auto_map"] = AUTO_MAPS[config["model_type"]]
    config_path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    (directory / _STUB).write_text((Path(__file__).parent / "stub.py").read_text())
