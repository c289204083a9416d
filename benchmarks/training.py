"""Compares a training step with other libraries, all of them in one run.

  python -m benchmarks.training --model=ViT-Ti_16 --batch=8
  python -m benchmarks.training --model=ViT-B_16 --batch=8 --peers=all --rounds=7
  python -m benchmarks.training --profile=/tmp/trace

A step of SGD with momentum on softmax cross-entropy, in float32 unless named, with
random weights and 1000 classes. Ours is the step of train.finetune. Each contender is
in a process of its own; they take turns, and the ratio of two is the median over the
rounds.

"import MB" is what the libraries need before there is a model.

--ours    float32, bfloat16, kept-memory (as in our commands), whole-scores (no
          attention in blocks), or all
--peers   keras-hub, keras-hub-xla, keras-hub-bfloat16, torch (timm), or all;
          --peers= for none
"""

from absl import flags

from benchmarks import command, model_flags, ours, peers
from benchmarks.profiling import profile

# Backwards is twice the arithmetic of forwards.
FORWARDS = 3

command.define_flags()
model_flags.define(model="ViT-Ti_16", batch=8, peers="keras-hub,torch")
flags.DEFINE_list("ours", "float32", "What of keras_vit, or all.")
flags.DEFINE_integer(
    "micro_batches", 1, "Parts in which ours computes a step.", lower_bound=1
)
flags.DEFINE_bool(
    "remat", False, "Ours computes each block once more instead of keeping it."
)


def main():
    """Runs the contest that the flags describe."""
    given = flags.FLAGS
    if given.batch % given.micro_batches:
        raise ValueError(
            f"--batch={given.batch} is no multiple of "
            f"--micro_batches={given.micro_batches}."
        )
    setting = model_flags.setting("logits")
    mine = {
        **setting.ours,
        "micro_batches": given.micro_batches,
        "remat": given.remat,
    }
    contenders = model_flags.contenders(
        ours.TRAINING,
        peers.TRAINING,
        mine,
        setting.peers,
        items=given.batch,
        operations=FORWARDS * setting.operations,
    )
    if given.profile:
        profile(contenders[0], given.profile)
        return
    command.compare(
        model_flags.stem("training"),
        contenders,
        reference=peers.TRAINING["keras-hub"].name,
    )


if __name__ == "__main__":
    command.run(main)
