"""What only a GPU can settle, in one record: is every backend right there, and how fast is IHA beside flash attention.

`make test-gpu` runs it. The record can be sent back to the project: it holds the GPU's name, all errors and all times.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from iha.accounting.mechanisms import AttentionShape
from iha.bench.attention import DTYPES, Sizes, compare_global, compare_local
from iha.bench.decoding import decoding_costs
from iha.bench.measure import Watch
from iha.ops import reference
from iha.ops.interleaved import interleaved_head_attention
from iha.records import Progress, Record, silent

BACKENDS = ("auto", "sdpa", "flash", "flex", "banded")
NAMES = ("out", "q", "k", "v", "alpha_q", "alpha_k", "alpha_v", "collapse")
ALLOWED = 2.0  # FlashAttention's rule: at most twice the error of the plain formula in the same precision


@dataclass(frozen=True)
class Settings:
    """What `iha bench gpu` measures. The first size is that of the README, the second the paper's layer."""

    device: str = "cuda"
    sizes: tuple[tuple[int, int, int], ...] = ((4096, 8, 64), (8192, 20, 128))  # N, H, D
    pseudo_heads: tuple[int, ...] = (2, 4)
    dtypes: tuple[str, ...] = ("bfloat16", "float16", "float32")
    repeats: int = 30
    draws: int = 8  # of random inputs per error
    tokens: int = 200  # of the sequences on which errors are measured; not a multiple of any tile
    decoding_window: int = 512
    seed: int = 0


def run(settings: Settings, command: str, progress: Progress = silent) -> Record:
    """Errors first, then times. A backend that refuses a case is recorded with its reason."""
    if settings.device == "cuda" and not torch.cuda.is_available():
        raise ValueError("there is no GPU here: torch.cuda.is_available() is False, so nothing can be tested")
    torch.manual_seed(settings.seed)
    watch = Watch()
    record = Record.new("gpu-bench", command=command, config=asdict(settings), seed=settings.seed)
    results: dict[str, Any] = {"gpu": _description(settings.device), "errors": [], "comparisons": [], "decoding": []}
    cases = [(dtype, name, backend) for dtype in settings.dtypes for name in _options(1, 2) for backend in BACKENDS]
    with progress.task("errors", total=len(cases)) as task:
        for case in cases:
            task.advance(0, note=" ".join(case))
            results["errors"].append(asdict(measure_error(settings, *case)))
            task.advance(1)
    with progress.task("times", total=len(settings.sizes)) as task:
        for size in settings.sizes:
            task.advance(0, note=f"N, H, D = {size}")
            results["comparisons"] += list(_comparisons(settings, size))
            results["decoding"] += list(_decoding(settings, size))
            task.advance(1)
    quiet = watch.judge(row["spread"] for row in (*results["comparisons"], *results["decoding"]))
    passed = all(row["passed"] for row in results["errors"])
    return record.finished({**results, "passed": passed, "quiet": quiet.as_json()})


@dataclass(frozen=True)
class BackendError:
    backend: str
    case: str
    dtype: str
    refused: str | None  # why the backend does not do it; nothing was computed then
    crashed: str | None  # what it raised, where it should have worked
    ratios: dict[str, float]  # root mean square error over the plain formula's, by tensor; gradients by their input
    passed: bool


def measure_error(settings: Settings, dtype: str, case: str, backend: str) -> BackendError:
    """Output and gradients of every input against the reference in float64, over several draws."""
    kind, squares = DTYPES[dtype], {name: [0.0, 0.0] for name in NAMES}
    for _ in range(settings.draws):
        exact = _inputs(settings)
        options = _options(exact[0].shape[0], settings.tokens, settings.device)[case]
        rounded = [t.to(kind) for t in exact]
        if "Nq" in options:  # the last tokens only, as behind a cache
            for inputs in (exact, rounded):
                inputs[0] = inputs[0][:, -options["Nq"] :]
        keywords = {name: value for name, value in options.items() if name != "Nq"}
        want = _differentiated(reference.interleaved_head_attention, [t.double() for t in rounded], keywords)
        try:
            got = _differentiated(interleaved_head_attention, rounded, {**keywords, "backend": backend})
        except ValueError as error:
            return BackendError(backend, case, dtype, str(error), None, {}, backend != "auto")
        except Exception as error:  # the other backends are still to be tested, and the record tells what happened
            return BackendError(backend, case, dtype, None, f"{type(error).__name__}: {error}", {}, False)
        plain = _differentiated(reference.interleaved_head_attention, rounded, keywords)
        for name in NAMES:
            squares[name][0] += (got[name].double() - want[name]).square().sum().item()
            squares[name][1] += (plain[name].double() - want[name]).square().sum().item()
    ratios = {name: (mine / max(formula, 1e-300)) ** 0.5 for name, (mine, formula) in squares.items()}
    return BackendError(backend, case, dtype, None, None, ratios, max(ratios.values()) <= ALLOWED)


def _inputs(settings: Settings, B: int = 2, H: int = 4, G: int = 2, P: int = 2, D: int = 64) -> list[Tensor]:
    """q, k, v, three alphas and R in float32, drawn so that scores stay of order one."""
    N = settings.tokens
    heads = [torch.randn(B, N, h, D) for h in (H, G, G)]
    alphas = [torch.randn(h, h, P) / h**0.5 for h in (H, G, G)]
    return [t.to(settings.device) for t in (*heads, *alphas, torch.randn(H, P))]


def _options(batch: int, tokens: int, device: str = "cpu") -> dict[str, dict[str, Any]]:
    """The cases by name: keyword arguments of the operator, and Nq where only the last tokens ask."""
    index = torch.arange(tokens, device=device)[None]
    left = (index >= torch.arange(batch, device=device)[:, None] * tokens // 5).expand(batch, tokens)
    documents = (index // max(1, tokens // 3)).expand(batch, tokens)
    return {
        "global": {},
        "window": {"window": 40},
        "window, RoPE": {"window": 40, "rope_theta": 10_000.0},
        "window, last tokens": {"window": 40, "Nq": 33},
        "padding": {"key_padding_mask": left},
        "padding, window": {"key_padding_mask": left, "window": 40},
        "documents": {"document_ids": documents},
        "documents, window": {"document_ids": documents, "window": 40},
        "padding with holes, window": {"key_padding_mask": left & (index % 7 != 3), "window": 40},
        "token causality": {"causal": "token"},
        "two-sided window": {"causal": None, "window": 40},
    }


def _differentiated(function: Any, inputs: list[Tensor], options: dict[str, Any]) -> dict[str, Tensor]:
    inputs = [t.detach().requires_grad_() for t in inputs]
    out = function(*inputs, **options)
    grad = torch.randn(out.shape, generator=torch.Generator().manual_seed(7)).to(out)
    return dict(zip(NAMES, (out.detach(), *torch.autograd.grad(out, inputs, grad)), strict=True))


def _comparisons(settings: Settings, size: tuple[int, int, int]) -> Iterator[dict[str, Any]]:
    """Local IHA by each backend, and global IHA, against SDPA with is_causal."""
    sizes = Sizes(*size, DTYPES[settings.dtypes[0]], settings.repeats, settings.device)
    for P in settings.pseudo_heads:
        for backend in ("auto", "flash", "flex"):
            try:
                rows = compare_local(sizes, P, backend)
            except ValueError:
                continue  # refused, as the errors say
            yield from ({"backend": backend, "size": size, **asdict(row)} for row in rows)
        yield from ({"backend": "auto", "size": size, **asdict(row)} for row in compare_global(sizes, P))


def _decoding(settings: Settings, size: tuple[int, int, int]) -> Iterator[dict[str, Any]]:
    tokens, heads, width = size
    shape, dtype = AttentionShape(heads * width, heads), DTYPES[settings.dtypes[0]]
    for cost in decoding_costs(
        shape, tokens, settings.pseudo_heads, settings.decoding_window, settings.repeats, settings.device, dtype
    ):
        yield {"size": size, **asdict(cost)}


def _description(device: str) -> dict[str, Any]:
    if device != "cuda":
        return {"name": device}
    found = torch.cuda.get_device_properties(0)
    return {
        "name": found.name, "capability": [found.major, found.minor], "memory": found.total_memory,
        "cuda": torch.version.cuda, "processors": found.multi_processor_count,
    }  # fmt: skip
