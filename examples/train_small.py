"""Train a model of 0.6 M parameters on Python's own source, look at its loss curve, and let it write some Python.

    python examples/train_small.py                     # about five minutes on two cores
    python examples/train_small.py --steps 20          # to see that it works

The same as `iha train recipes/laptop-1m.yaml`, from Python: a recipe is a typed object, training one function. Called
again, it goes on where it was; finished, it only shows the result.
"""

import argparse
from pathlib import Path

from iha.models import generation
from iha.report.training import loss_curve
from iha.train.export import export
from iha.train.loop import train
from iha.train.metrics import read_metrics
from iha.train.recipe import Data, Model, Optimiser, Recipe, Schedule, Validation

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=600)
parser.add_argument("--attention", default="iha", help="or global, global_local, talking_heads, differential")
parser.add_argument("--out", type=Path, default=Path("out/examples/train_small"))
arguments = parser.parse_args()

recipe = Recipe(
    name="train_small",
    model=Model(preset="1m", attention=arguments.attention, config={"num_pseudo_heads": 2}),
    data=Data(context=256, batch=16),  # the standard library, byte by byte: always there
    optimiser=Optimiser(learning_rate=3e-3),
    schedule=Schedule(steps=arguments.steps, warmup=min(50, arguments.steps // 2)),
    validation=Validation(every=100, sequences=32),
)
outcome = train(recipe, arguments.out)
print(f"{outcome.results['parameters']:,} parameters, step {outcome.step}, {outcome.results}")

loss_curve(read_metrics(arguments.out / "metrics.jsonl"), recipe.name, arguments.out / "loss.svg")
export(arguments.out, arguments.out / "export")
model, tokenizer = generation.load(str(arguments.out / "export"))
prompt = tokenizer("def read(path):\n    ", return_tensors="pt")
written = model.generate(**prompt, max_new_tokens=80, do_sample=True, temperature=0.7)
print(tokenizer.decode(written[0]))
