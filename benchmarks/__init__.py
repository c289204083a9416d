"""Speed and memory against peers, both sides in one run.

The commands are benchmarks.inference, training, startup, resize, input and scale; each
explains itself with --help. A benchmark of your own is a table of jobs and a command:

    @contest.row(PEERS, "peer", "peer's name", imports=("tensorflow", "peer"))
    def job(batch):  # sets up, in a process of its own
        return step  # one measured unit of work, without arguments

    command.define_flags()  # --rounds, --repeats, --out_dir
    command.compare("own-b8", contenders)  # table, JSON and exit status

One that measures otherwise takes `process.Worker(contender, log)` (`ready`, `run`,
`close`) and gives its own table to `command.publish`.
"""
