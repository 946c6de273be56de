"""Whether a run fits into this machine's memory."""

from iha.records.host import available_bytes
from iha.synthetic.config import RunConfig

_BYTES = 4  # float32


def memory_needed(config: RunConfig) -> int:
    """Bytes, roughly: the data and what one training step keeps for its backward pass.

    Deliberately simple: it refuses a run that would run out of memory hours later, and is not meant for planning.
    """
    task = config.data
    largest = max(config.sizes)
    N = task.length(largest)
    examples = config.train_examples + config.validation_examples + config.test_examples
    numbers = max(1, len(task.vocabularies) + task.num_features) + 1
    data = 8 * examples * N * numbers
    activations = (
        N * config.width * (30 + 12 * max(config.num_pseudo_heads, config.num_pseudo_keys or 1))
        + N * task.num_outputs * 4
    )
    if config.mechanism in ("talking_heads", "differential"):
        activations += 6 * config.num_heads * N * N  # attention maps, kept
    if config.mechanism in ("simplicial", "strassen"):
        activations += config.width * N * N  # a vector for each query and first key, or pairs of keys
    return data + _BYTES * config.batch_size * activations


def check_memory(config: RunConfig) -> None:
    needed, available, largest = memory_needed(config), available_bytes(), max(config.sizes)
    if needed > available:
        raise ValueError(
            f"size {largest} ({config.data.length(largest)} tokens) with {config.mechanism} needs about "
            f"{needed / 2**30:.1f} GiB, this machine has {available / 2**30:.1f} GiB free: use a smaller --max-size, "
            "--batch-sizes or --train-examples"
        )
