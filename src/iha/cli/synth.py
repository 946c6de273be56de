"""`iha synth`: the synthetic reasoning experiments; `iha collect`: what is kept of them."""

from pathlib import Path
from typing import Annotated

import typer


def synth(
    task: Annotated[str, typer.Argument(help="binary, ternary, cpm3, polynomial or retrieval")],
    mechanisms: Annotated[
        str,
        typer.Option(
            help="comma-separated: multihead, iha, paired_heads, simplicial, talking_heads, differential, "
            "knocking_heads, strassen"
        ),
    ] = "multihead,iha,simplicial",
    scale: Annotated[str, typer.Option(help="quick (minutes), small (hours) or paper (the full protocol)")] = "quick",
    heads: Annotated[str | None, typer.Option(help="H, comma-separated for a sweep")] = None,
    pseudo_heads: Annotated[
        str | None, typer.Option(help="P of IHA, comma-separated; as many as heads when not given")
    ] = None,
    pseudo_keys: Annotated[
        str | None, typer.Option(help="P_k of IHA, one for each of --pseudo-heads; the same number when not given")
    ] = None,
    inits: Annotated[str, typer.Option(help="initialisations of alpha and R, comma-separated")] = "one_hot",
    positions: Annotated[str, typer.Option(help="1d, 1d_size, 2d, comma-separated")] = "1d",
    learning_rates: Annotated[str | None, typer.Option(help="comma-separated")] = None,
    mixing_rates: Annotated[str, typer.Option(help="learning rate of alpha and R as a factor, comma-separated")] = "1",
    windows: Annotated[
        str | None, typer.Option(help="of the second keys of 2-simplicial attention, comma-separated; none by default")
    ] = None,
    offsets: Annotated[
        str,
        typer.Option(
            help="of the second keys and values of 2-simplicial attention: none, or published (1/D and 1, as in its "
            "kernels), comma-separated"
        ),
    ] = "none",
    seeds: Annotated[str | None, typer.Option(help="comma-separated")] = None,
    widths: Annotated[str | None, typer.Option(help="of the model, comma-separated")] = None,
    batch_sizes: Annotated[str | None, typer.Option(help="examples a step, comma-separated")] = None,
    model: Annotated[
        str | None, typer.Option(help="paper (two norms, biases, full collapse) or ours; by default as the scale says")
    ] = None,
    norms: Annotated[str | None, typer.Option(help="pre, post, comma-separated")] = None,
    weight_decays: Annotated[str | None, typer.Option(help="comma-separated")] = None,
    optimisers: Annotated[
        str | None, typer.Option(help="adamw, adam (L2 penalty as weight decay), sgd (momentum 0.9), comma-separated")
    ] = None,
    weights: Annotated[
        str | None,
        typer.Option(help="how matrices begin: torch (its defaults), normal (0.02), xavier, comma-separated"),
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="at most")] = None,
    patience: Annotated[int | None, typer.Option(help="epochs without a better validation score")] = None,
    max_size: Annotated[int | None, typer.Option(help="leaves out the task's larger sizes m")] = None,
    sizes: Annotated[str | None, typer.Option(help="sizes m in place of the task's own, comma-separated")] = None,
    train_examples: Annotated[int | None, typer.Option(help="size of the training split")] = None,
    held_out_examples: Annotated[int | None, typer.Option(help="size of the validation and of the test split")] = None,
    kernels: Annotated[
        str, typer.Option(help="what computes attention: layers, states (faster, same numbers), or auto")
    ] = "auto",
    pause_at: Annotated[
        int | None, typer.Option(help="stop every run after this epoch for now; without it the same command goes on")
    ] = None,
    workers: Annotated[int, typer.Option(help="runs at once; as many as cores when 0")] = 0,
    threads: Annotated[int, typer.Option(help="of each run; more than one is for a sweep's last run")] = 1,
    out: Annotated[Path | None, typer.Option(help="results; a rerun with the same directory goes on")] = None,
) -> None:
    """Train one-layer models with different attention on a synthetic task, and compare them.

    If it is killed, the same command resumes it.
    """
    from iha.cli.invocation import command_line
    from iha.cli.progress import bars
    from iha.report.synthetic import summary_table
    from iha.report.synthetic_plots import plot_sweep
    from iha.synthetic.config import choose_scale, decimals, grid, integers, words
    from iha.synthetic.sweep import read_runs, run_sweep

    chosen = choose_scale(
        scale, heads=integers(heads), learning_rates=decimals(learning_rates), seeds=integers(seeds),
        widths=integers(widths), batch_sizes=integers(batch_sizes), epochs=epochs, patience=patience,
        max_size=max_size, sizes=integers(sizes), train_examples=train_examples,
        held_out_examples=held_out_examples, model=model, norms=None if norms is None else words(norms),
        weight_decays=decimals(weight_decays), optimisers=None if optimisers is None else words(optimisers),
        weights=None if weights is None else words(weights),
    )  # fmt: skip
    runs = grid(
        task, words(mechanisms), chosen, pseudo_heads=integers(pseudo_heads) or (),
        pseudo_keys=integers(pseudo_keys) or (), inits=words(inits), positions=words(positions),
        mixing_rates=decimals(mixing_rates) or (1.0,), windows=integers(windows) or (None,),
        offsets=words(offsets),
    )  # fmt: skip
    out = out or Path("results") / "synth" / f"{task}-{scale}"
    with bars() as progress:
        summary = run_sweep(
            runs, out, workers=workers, threads=threads, kernels=kernels, pause_at=pause_at, command=command_line(),
            progress=progress,
        )  # fmt: skip
    summary_table(summary).print()
    try:
        written = plot_sweep(read_runs(out), out)
    except ImportError:
        typer.echo("no plots: they need matplotlib, the extra 'report'", err=True)
        return
    for path in written:
        typer.echo(f"wrote {path}")


def collect(
    results: Annotated[Path, typer.Argument(help="the directory of kept results, one JSON file a sweep")],
    sweeps: Annotated[Path | None, typer.Option(help="a directory of sweeps (`iha synth --out`) to keep there")] = None,
    figures: Annotated[
        Path | None,
        typer.Option(help="where figures go, RESULTS/figures when not given; without --sweeps: those of all kept ones"),
    ] = None,
) -> None:
    """Keep the results of synthetic sweeps as small files with figures, and write their page of tables."""
    from iha.report.synthetic import draw_kept, keep_sweeps, write_page

    if sweeps is None:
        written = [write_page(results), *([] if figures is None else draw_kept(results, figures))]
    else:
        written = keep_sweeps(sweeps, results, figures or results / "figures")
    for path in written:
        typer.echo(f"wrote {path}")
