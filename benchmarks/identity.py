"""Did a refactoring change a number?  Records seeded outputs, gradients and losses; compares them bit by bit.

    python benchmarks/identity.py record FILE      # on the commit to compare with
    python benchmarks/identity.py compare FILE     # after the change; exit code 1 when anything differs

Only public names are used, so that the same script runs before and after. The numbers depend on the machine and on
torch's build: record and compare in one place, with the same environment. An operator that refuses a case is recorded
as refusing it.
"""

import itertools
import json
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import iha

B, N, H, G, D, P = 2, 40, 4, 2, 6, 3
KEYS = {"simplicial": 4, "strassen": 4}  # tensors with one row per key token; two elsewhere
WEIGHTS = {"talking_heads": [(H, H)] * 2, "differential": [(), (2 * D,)], "multi_token": [(H, 3, 5), (H // 2, 2, 2)]}
BACKENDS = {"interleaved": ("auto", "reference", "sdpa", "banded"), "multihead": ("auto", "sdpa", "banded")}
LAYERS = {
    "interleaved": "InterleavedHeadAttention", "multihead": "MultiHeadAttention", "strassen": "StrassenAttention",
    "talking_heads": "TalkingHeadsAttention", "differential": "DifferentialAttention",
    "multi_token": "MultiTokenAttention", "knocking_heads": "KnockingHeadsAttention",
    "simplicial": "SimplicialAttention",
}  # fmt: skip
MODELS: dict[str, dict[str, Any]] = {
    "iha": {"attention": "iha", "window": 4, "global_every": 3},
    "iha-everywhere": {"attention": "iha", "window": 0, "global_every": None, "num_pseudo_heads": [3, 2, 1]},
    "iha-token": {"attention": "iha", "window": 5, "causal": "token", "rope_positions": "token", "collapse": "full"},
    "global": {"attention": "global"},
    "global_local": {"attention": "global_local", "window": 4, "global_every": 2},
    "talking_heads": {"attention": "talking_heads"},
    "differential": {"attention": "differential"},
}


def seeded(name: str) -> torch.Generator:
    return torch.Generator().manual_seed(zlib.crc32(name.encode()))


def masks() -> dict[str, dict[str, Tensor]]:
    padding = torch.ones(B, N, dtype=torch.bool)
    padding[1, :7], padding[0, 11] = False, False
    documents = torch.stack((torch.arange(N) // 13, torch.arange(N) // 17))
    return {"": {}, "padding": {"key_padding_mask": padding}, "documents": {"document_ids": documents},
            "both": {"key_padding_mask": padding, "document_ids": documents}}  # fmt: skip


def gradients(name: str, run: Callable[..., Tensor], tensors: list[Tensor]) -> Iterator[tuple[str, Any]]:
    tensors = [t.requires_grad_() for t in tensors]
    try:
        out = run(*tensors)
    except ValueError:
        yield name, "refused"
        return
    yield f"{name}/out", out.detach()
    grad = torch.randn(out.shape, generator=seeded("grad"), dtype=torch.float64).to(out.dtype)
    grads = torch.autograd.grad(out, tensors, grad)
    yield from ((f"{name}/grad{n}", g) for n, g in enumerate(grads))


def operators() -> Iterator[tuple[str, Any]]:
    for mechanism in ("interleaved", "multihead", "talking_heads", "differential", "multi_token", *KEYS):
        suffix = "interleaved_head_attention" if mechanism == "interleaved" else f"{mechanism}_attention"
        function = getattr(import_module(f"iha.ops.{mechanism}"), suffix)
        axes = (("virtual", "token", None), (None, 1, 5), masks().items(), (N, 9), BACKENDS.get(mechanism, ("",)))
        for causal, window, (masked, mask), Nq, backend in itertools.product(*axes):
            if mechanism in KEYS and (causal == "token" or window == 1):
                continue  # the same code again, and slow
            for dtype in (torch.float64, torch.float32) if mechanism == "interleaved" else (torch.float32,):
                name = f"ops/{mechanism}/{causal}/{window}/{masked}/{Nq}/{backend}/{dtype}"
                shapes = [(B, Nq, H, D)] + [(B, N, G, D)] * KEYS.get(mechanism, 2)
                if mechanism == "differential":
                    shapes[2] = (B, N, G // 2, 2 * D)
                mixing = [(H, H, P), (G, G, P), (G, G, P), (H, P if Nq == N else H * P)]
                shapes += mixing if mechanism == "interleaved" else WEIGHTS.get(mechanism, [])
                options: dict[str, Any] = {"causal": causal, "window": window, **mask}
                options |= {"backend": backend} if backend else {}
                options |= {} if mechanism == "simplicial" else {"rope_theta": 100.0}
                options |= {"lambda_init": 0.3} if mechanism == "differential" else {}
                options |= {"rope_positions": "token"} if mechanism == "interleaved" and window == 1 else {}
                tensors = [torch.randn(s, generator=seeded(name), dtype=torch.float64).to(dtype) for s in shapes]
                yield from gradients(name, lambda *t, f=function, o=options: f(*t, **o), tensors)


def layers() -> Iterator[tuple[str, Any]]:
    for (mechanism, name), window in itertools.product(LAYERS.items(), (None, 6)):
        torch.manual_seed(0)
        extra = {} if mechanism == "simplicial" else {"rope_theta": 100.0}
        extra |= {"num_pseudo_heads": P} if mechanism == "interleaved" else {}
        layer = getattr(import_module(f"iha.layers.{mechanism}"), name)(24, H, num_kv_heads=G, window=window, **extra)
        yield from ((f"layers/{mechanism}/init/{key}", value.clone()) for key, value in layer.state_dict().items())
        for masked, mask in masks().items():
            x = torch.randn(B, N, 24, generator=seeded("x"))
            out = layer(x, **mask)
            yield f"layers/{mechanism}/{window}/{masked}", out.detach()
        yield from training(f"layers/{mechanism}/{window}", layer, lambda x=x, layer=layer: layer(x).square().mean())


def training(name: str, module: torch.nn.Module, loss: Callable[[], Tensor]) -> Iterator[tuple[str, Any]]:
    optimiser = torch.optim.AdamW(module.parameters(), lr=1e-2)
    for step in range(4):
        value = loss()
        yield f"{name}/loss{step}", value.detach()
        optimiser.zero_grad()
        value.backward()
        optimiser.step()


def models() -> Iterator[tuple[str, Any]]:
    fields = {
        "vocab_size": 61, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4,
        "num_key_value_heads": 2, "max_position_embeddings": 64, "initializer_range": 0.2, "pad_token_id": 0,
        "bos_token_id": None, "eos_token_id": None,
    }  # fmt: skip
    for kind, attention in MODELS.items():
        torch.manual_seed(0)
        model = iha.IHAForCausalLM(iha.IHAConfig(**{**fields, **attention})).eval()
        x = torch.randint(1, 61, (2, 20), generator=seeded("tokens"))
        mask = torch.ones_like(x)
        mask[1, :6] = 0
        with torch.no_grad():
            yield f"models/{kind}/prefill", model(x).logits
            yield f"models/{kind}/padding", model(x, attention_mask=mask).logits[mask.bool()]
            for sizes in ((7, 9, 4), (12, *(1,) * 8)):
                cache, parts = None, []
                for chunk in x.split(sizes, dim=1):
                    out = model(chunk, past_key_values=cache, use_cache=True)
                    cache, parts = out.past_key_values, [*parts, out.logits]
                yield f"models/{kind}/chunks{sizes}", torch.cat(parts, dim=1)
            for options in ({}, {"cache_implementation": "static"}, {"num_beams": 3}):
                out = model.generate(x, attention_mask=mask, max_new_tokens=8, do_sample=False, **options)
                yield f"models/{kind}/generate{options}", out
        yield from training(f"models/{kind}", model.train(), lambda model=model, x=x: model(x, labels=x).loss)


def synthetic() -> Iterator[tuple[str, Any]]:
    with tempfile.TemporaryDirectory() as out:
        sizes = ["--sizes", "3,4", "--train-examples", "256", "--held-out-examples", "64", "--widths", "16"]
        more = ["--epochs", "2", "--workers", "1", "--mechanisms", "mha,iha,simplicial", "--kernels", "layers"]
        code = "from iha.cli.main import app; app()"
        subprocess.run(
            [sys.executable, "-c", code, "synth", "binary", *sizes, *more, "--out", out],
            check=True,
            capture_output=True,
        )
        for n, path in enumerate(sorted((Path(out) / "runs").glob("*.json"))):  # iha, multi-head, simplicial
            record = json.loads(path.read_text())
            history = record.get("results", record)["history"]
            losses = [[entry[key] for key in ("train_loss", "validation_loss", "test_loss")] for entry in history]
            yield f"synthetic/{n}", torch.tensor(losses, dtype=torch.float64)


def main(command: str, file: str) -> int:
    torch.set_num_threads(1)
    found = {name: value for part in (operators, layers, models, synthetic) for name, value in part()}
    if command == "record":
        torch.save(found, file)
        print(f"{len(found)} values recorded in {file}")
        return 0
    wanted = torch.load(file, weights_only=True)
    different = [name for name in wanted if not same(wanted[name], found.get(name))]
    for name in different:
        print(f"differs: {name}: {distance(wanted[name], found.get(name))}")
    print(f"{len(wanted) - len(different)} of {len(wanted)} values are identical, {len(found)} computed")
    return bool(different)


def same(a: Any, b: Any) -> bool:
    return torch.equal(a, b) if isinstance(a, Tensor) and isinstance(b, Tensor) else isinstance(a, str) and a == b


def distance(a: Any, b: Any) -> str:
    comparable = isinstance(a, Tensor) and isinstance(b, Tensor) and a.shape == b.shape
    return f"by {(a.double() - b.double()).abs().max():.2e}" if comparable else f"{type(a)} against {type(b)}"


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in ("record", "compare"):
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
