"""Speed and memory against peers, both sides in one run.

The commands are benchmarks.inference, training, startup, resize, input, scale and
exported; each explains itself with --help. What another benchmark is made of:

    from benchmarks.contest import Contender

    Contender(
        name="keras_vit",
        job="benchmarks.own:job",  # a function, imported in the worker only
        settings={"batch": 8},  # its keyword arguments, as JSON
        imports=("tensorflow", "keras_vit"),  # before the job, and before the memory
        environment={"KERAS_BACKEND": "jax"},  # before any import; else tensorflow
        items=8,  # images (files, ...) a step
        operations=None,  # floating-point operations a step, for the share of the limit
        warm_up=2,  # unmeasured steps at first, and one a turn; 0 for none at all
        ours=True,  # its failure fails the command
    )

`job(**settings)` builds and compiles in a process of its own and returns `step`, a
function without arguments that does one measured unit of work and returns when the
result is there. What it prints goes to a log file.

A command whose contenders take turns:

    command.define_flags()  # --rounds, --repeats, --out_dir

    def main():
        command.compare("own-b8", contenders, reference="peer")  # table, JSON, status

    if __name__ == "__main__":
        command.run(main)

One that measures otherwise takes `process.Worker(contender, log)` (`ready`, `run`,
`close`) or whatever it likes, and gives its own table to `command.publish`, with
`command.provenance` in the JSON.
"""
