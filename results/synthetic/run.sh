#!/bin/sh
# The runs behind docs/synthetic.md, most informative first. Kill it at any time; started again, it goes on.
#   OUT: where the runs go; WORKERS: runs at once, one thread each; IHA: the command; ONLY: names, all when empty.
set -eu
OUT=${OUT:-runs/synthetic}
WORKERS=${WORKERS:-1}
IHA=${IHA:-iha}
ONLY=${ONLY:-}

synth() {
    name=$1
    shift
    case " ${ONLY:-$name} " in *" $name "*) ;; *) return 0 ;; esac
    $IHA synth "$@" --workers "$WORKERS" --out "$OUT/$name"
}

small="--scale small --epochs 9"
# Few heads: MHA against IHA with P = H and P = 2H, three seeds.
synth binary-h2 binary --mechanisms mha,iha --heads 2 --pseudo-heads 2,4 $small
# Theory's head count: a bank of k = 4 powers needs 4 heads of MHA, 2 of IHA with P = 2.
synth polynomial-heads polynomial --mechanisms mha,iha --heads 1,2,4 --scale small --max-size 16 --train-examples 10000 --epochs 12
synth polynomial-inits polynomial --mechanisms iha --heads 2 --inits one_hot,random,warm_start,orthogonal,identity --scale small --max-size 16 --train-examples 10000 --seeds 0 --epochs 12
# What positions do to the task.
synth binary-positions binary --mechanisms mha --heads 8 --positions 1d,2d,1d_size --seeds 0 $small
# The paper's heads.
synth binary-h8 binary --mechanisms mha,iha --heads 8 --seeds 0 $small
synth binary-h2-simplicial binary --mechanisms simplicial --heads 2 --seeds 0 $small
synth cpm3-heads cpm3 --mechanisms mha,iha --heads 1,2,4 --scale small --max-size 10 --seeds 0 --epochs 12
synth retrieval-heads retrieval --mechanisms mha,iha --heads 1,2,4 --scale small --max-size 16 --seeds 0 --epochs 12
# Initialisations of alpha and R, and their learning rate.
synth binary-h2-inits binary --mechanisms iha --heads 2 --pseudo-heads 2 --inits random,warm_start,orthogonal,identity --seeds 0 $small
synth binary-h2-others binary --mechanisms talking_heads,differential,knocking_heads --heads 2 --seeds 0 $small
synth binary-h2-mixing binary --mechanisms iha --heads 2 --pseudo-heads 2 --mixing-rates 10,0.1 --seeds 0 $small
synth binary-h2-strassen binary --mechanisms strassen --heads 2 --seeds 0 $small
synth ternary-h2 ternary --mechanisms mha,iha --heads 2 --pseudo-heads 2,4 --seeds 0 --max-size 7 $small
synth binary-h8-simplicial binary --mechanisms simplicial --heads 8 --seeds 0 $small
