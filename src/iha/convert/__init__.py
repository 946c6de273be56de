"""Convert Llama, Mistral and Qwen2/Qwen3 checkpoints to IHA models with the same logits, and back if that is exact."""

from iha.convert.back import export
from iha.convert.forward import convert, from_pretrained, summary

__all__ = ["convert", "export", "from_pretrained", "summary"]
