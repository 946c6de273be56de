#!/bin/sh
# The runs behind docs/synthetic.md, most informative first. Kill it at any time; started again, it goes on.
#   OUT: where the runs go; WORKERS: runs at once, one thread each; IHA: the command; ONLY: names, all when empty.
set -eu
OUT=${OUT:-runs/synthetic}
WORKERS=${WORKERS:-2}
IHA=${IHA:-iha}
ONLY=${ONLY:-}

synth() {
    name=$1
    shift
    case " ${ONLY:-$name} " in *" $name "*) ;; *) return 0 ;; esac
    $IHA synth "$@" --workers "$WORKERS" --out "$OUT/$name"
}

# The paper's model and protocol: 3-hop, the control with one pseudo-head, 2-hop. One seed of all before the second.
paper="--scale paper --batch-sizes 32"
for seed in 0 1 2; do
    synth ternary-model-s$seed ternary --mechanisms multihead,iha,simplicial $paper --seeds $seed
    synth ternary-model-control-s$seed ternary --mechanisms iha --pseudo-heads 1 $paper --seeds $seed
    synth binary-model-s$seed binary --mechanisms multihead,iha,simplicial $paper --seeds $seed
done

# The control at 1e-4 alone, as far as it was run; 2-simplicial attention with the second window of its published kernels.
synth ternary-model-control-1e-4-s0 ternary --mechanisms iha --pseudo-heads 1 $paper --learning-rates 1e-4 --seeds 0 --pause-at 60
synth ternary-model-window-s0 ternary --mechanisms simplicial --windows 32 $paper --learning-rates 1e-3 --seeds 0 --pause-at 10
# What the paper leaves open, with its model at small cost: 3-hop with m = 5 alone.
cheap="--scale paper --sizes 5 --train-examples 10000 --epochs 15"
usual="--batch-sizes 32 --learning-rates 1e-3"
all="--mechanisms multihead,iha,simplicial"
synth ternary-m5-norm ternary $all $cheap $usual --seeds 0 --norms pre,post
synth ternary-m5-inits ternary --mechanisms iha $cheap $usual --seeds 0 --inits warm_start,orthogonal
synth ternary-m5-control ternary --mechanisms iha --pseudo-heads 1 $cheap $usual --seeds 0
synth ternary-m5-batch ternary $all $cheap --batch-sizes 128 --learning-rates 1e-3 --seeds 0
synth ternary-m5-rates ternary $all $cheap --batch-sizes 32 --learning-rates 3e-3 --seeds 0
synth ternary-m5-seeds ternary $all $cheap $usual --seeds 1,2
synth ternary-m5-control-seeds ternary --mechanisms iha --pseudo-heads 1 $cheap $usual --seeds 1,2
synth ternary-m5-weights ternary $all $cheap $usual --seeds 0 --weights normal,xavier
synth ternary-m5-offsets ternary --mechanisms simplicial $cheap $usual --seeds 0 --offsets published
synth ternary-m5-decay ternary $all $cheap $usual --seeds 0 --weight-decays 0.1
synth ternary-m5-sgd ternary $all $cheap --batch-sizes 32 --learning-rates 0.1 --seeds 0 --optimisers sgd
synth ternary-m5-sgd-seeds ternary $all $cheap --batch-sizes 32 --learning-rates 0.1 --seeds 1,2 --optimisers sgd
synth ternary-m5-sgd-rates-seeds ternary $all $cheap --batch-sizes 32 --learning-rates 0.03 --seeds 1,2 --optimisers sgd
synth ternary-m5-sgd-rates ternary $all $cheap --batch-sizes 32 --learning-rates 0.03 --seeds 0 --optimisers sgd  # 0.3 diverges
synth ternary-m5-sgd-slow ternary $all $cheap --batch-sizes 32 --learning-rates 1e-2,1e-3 --seeds 0 --optimisers sgd
# As many parameters as 2-simplicial attention: its 239 873 on 3-hop lie between those of MHA at these widths.
synth ternary-m5-width ternary --mechanisms multihead $cheap $usual --seeds 0 --widths 136,144
# 2-hop at small cost: m = 6 alone, which all solve, and m = 6 and 7.
cheap="--scale paper --train-examples 10000 --epochs 15"
synth binary-m6 binary $all $cheap $usual --sizes 6 --seeds 0
synth binary-m67 binary $all $cheap $usual --sizes 6,7 --seeds 0
synth binary-m67-control binary --mechanisms iha --pseudo-heads 1 $cheap $usual --sizes 6,7 --seeds 0

# All below: our first reading of the model ("ours"), at a smaller scale.
small="--scale small --epochs 9"
bank="--scale small --max-size 16 --train-examples 10000 --epochs 12"
# The paper's heads, and everything it is compared with.
synth binary-h8 binary --mechanisms mha,iha,simplicial,talking_heads,differential,knocking_heads,strassen --heads 8 --inits one_hot,warm_start $small
# Heads from scarce to plenty, P = H; and more pseudo-heads than heads.
synth binary-heads binary --mechanisms mha,iha --heads 1,2,4,8 $small
synth binary-h2 binary --mechanisms mha,iha --heads 2 --pseudo-heads 2,4 $small
# What the paper leaves open: initialisation of alpha and R, their learning rate, positions, learning rate, width, length.
synth binary-inits binary --mechanisms iha --heads 4 --inits one_hot,warm_start,random,orthogonal,identity $small
synth binary-mixing binary --mechanisms iha --heads 4 --mixing-rates 1,10,0.1 --seeds 0 $small
synth binary-positions binary --mechanisms mha --heads 8 --positions 1d,2d,1d_size --seeds 0 $small
synth binary-width binary --mechanisms mha,iha --heads 4 --widths 64,128 --seeds 0 $small
synth binary-batch binary --mechanisms mha,iha --heads 4 --batch-sizes 16,64,256 --seeds 0 $small
# One head of width 16, with which Kozachinskiy et al., whom the paper follows, solve the task by Strassen attention.
synth binary-tiny binary --mechanisms mha,strassen --heads 1 --widths 16 --positions 1d,2d --seeds 0 --scale small
synth binary-slow binary --mechanisms mha,iha --heads 4 --pseudo-heads 1,4 --learning-rates 1e-4 --seeds 0 $small
# Controls: with P = 1 alpha only re-parametrises MHA's projections; and MHA with larger learning rates.
synth binary-control binary --mechanisms iha --heads 2,4,8 --pseudo-heads 1 --inits warm_start $small
synth binary-mixing-control binary --mechanisms iha --heads 4 --pseudo-heads 1 --mixing-rates 10 --seeds 0 $small
synth binary-rates binary --mechanisms mha --heads 4,8 --learning-rates 1e-3,2e-3,4e-3,8e-3 --seeds 0 $small
synth binary-rates-h8 binary --mechanisms mha,iha --heads 8 --pseudo-heads 1,8 --inits warm_start --learning-rates 1e-3,4e-3 --seeds 0 $small
synth binary-fast binary --mechanisms mha,iha --heads 4 --pseudo-heads 1,4 --learning-rates 4e-3 --seeds 0 --scale small --epochs 30
# 3-hop: few heads; the paper's heads and everything it is compared with; the paper's data, cut after 6 epochs.
synth ternary-h2 ternary --mechanisms mha,iha --heads 2 --pseudo-heads 1,2 $small
synth ternary-h4 ternary --mechanisms mha,iha --heads 4 --pseudo-heads 1,4 $small
synth ternary-h8 ternary --mechanisms mha,iha,simplicial,talking_heads,differential,knocking_heads,strassen --heads 8 --pseudo-heads 1,8 $small
synth ternary-paper ternary --mechanisms mha,iha,simplicial --pseudo-heads 1,8 --inits warm_start --scale paper --model ours --widths 64 --learning-rates 1e-3 --seeds 0 --epochs 6
# Theory's tasks: a bank of k = 4 powers needs 4 heads of MHA, 2 of IHA with P = 2.
synth polynomial-heads polynomial --mechanisms mha,iha --heads 1,2,4 $bank
synth polynomial-control polynomial --mechanisms iha --heads 2 --pseudo-heads 1 $bank
synth polynomial-inits polynomial --mechanisms iha --heads 2 --inits one_hot,random,warm_start,orthogonal,identity --seeds 0 $bank
synth cpm3-heads cpm3 --mechanisms mha,iha --heads 1,2,4 --scale small --max-size 10 --seeds 0 --epochs 12
synth retrieval-heads retrieval --mechanisms mha,iha --heads 1,2,4 --scale small --max-size 16 --seeds 0 --epochs 12
# Where pseudo-heads pay: (P_q, P_k) = (1, 4), (4, 1) and (2, 2) at equal FLOPs; paired heads at twice multi-head's.
uneven="--pseudo-heads 1,4,2 --pseudo-keys 4,1,2"
synth binary-uneven binary --mechanisms multihead,iha,paired_heads --heads 4 $uneven $small
synth ternary-uneven ternary --mechanisms multihead,iha,paired_heads --heads 4 $uneven $small
synth polynomial-uneven polynomial --mechanisms iha --heads 2 $uneven $bank
