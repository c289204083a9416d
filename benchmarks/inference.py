"""Compares inference with other libraries, all of them in one run.

  python -m benchmarks.inference --model=ViT-B_16 --batch=8
  python -m benchmarks.inference --model=ViT-Ti_16 --batch=1 --peers=all
  python -m benchmarks.inference --model=dinov2-s14/lvd142m --output=features
  python -m benchmarks.inference --ours=graph --profile=/tmp/trace

Every model has random weights, 1000 classes and class-token pooling; one of another
family gives tokens or features (--output) and is timm's of that name. Each is in a
process of its own; they take turns, and the ratio of two is the median over the
rounds. "setup s" is the making of a model and its first two steps: it is compiled or
converted there.

--ours    graph (a bare tf.function), whole-scores (the same without attention in
          blocks), predictor, xla (the predictor with jit_compile), any-size (of a
          model for images of any size), keras-predict, jax, torch, litert,
          onnxruntime, openvino (engines of the predictor), bfloat16,
          openvino-bfloat16, litert-int8 (precisions), or all
--peers   keras-hub, keras-hub-jax, vit-keras, torch (timm),
          torch-compile, transformers, onnxruntime, litert, litert-int8, or all;
          --peers= for none
"""

from absl import flags

from benchmarks import command, model_flags, ours, peers
from benchmarks.profiling import profile

command.define_flags()
model_flags.define(model="ViT-B_16", batch=8, peers="keras-hub,torch")
flags.DEFINE_enum(
    "output",
    None,
    ["tokens", "features"],
    "Of models of other families: all tokens, or the pooled vector. By default what "
    "keras-hub's encoder gives: tokens of DINOv2, the pooled vector of SigLIP.",
)
flags.DEFINE_list("ours", "graph,predictor,xla", "What of keras_vit, or all.")


def main():
    """Runs the contest that the flags describe."""
    given = flags.FLAGS
    setting = model_flags.setting(given.output)
    contenders = model_flags.contenders(
        ours.INFERENCE,
        peers.PEERS,
        setting.ours,
        setting.peers,
        items=given.batch,
        operations=setting.operations,
    )
    if given.profile:
        profile(contenders[0], given.profile)
        return
    command.compare(
        model_flags.stem("inference", given.output),
        contenders,
        reference=peers.PEERS["keras-hub"].name,
    )


if __name__ == "__main__":
    command.run(main)
