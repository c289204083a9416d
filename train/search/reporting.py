"""The report of a search: its model, tested on as many photos as there is time for."""

import dataclasses

import numpy as np

from train.data.sources.splits import Split
from train.data.sources.subset import limited
from train.scoring.ranked import ranked
from train.scoring.temperature import log_losses
from train.search import heads, time_plan
from train.search.answers import Answer
from train.search.backbones import Backbone
from train.search.state import State
from zoo.network.head import softmax


def tested_in_time(search: State, answer: Answer, known: int = 0) -> int:
    """Returns how many test photos there is time for; their answers are computed.

    So many of the first are `known`, and take no time. The others come in parts of half
    the time that is left, so that a machine which becomes slower is noticed.
    """
    cost, total = time_plan.costs(search), search.test.num_examples
    if search.seeds > 1:
        # The others are tested on the same photos, and have planned for no more.
        total = time_plan.planned_test(search)
    seconds, done = cost.photo + cost.longest, 0
    count = min(max(time_plan.FEWEST_TESTED, known), total)
    while count:
        begun = search.budget.clock()
        answer.logits(limited(search.test, done + count))
        if done:
            # A first answer has tested the first photos before.
            seconds = max(search.budget.clock() - begun, 1e-6) / count
        done, rest = done + count, total - done - count
        coming = int(time_plan.left_for_tests(search) / 2 / seconds)
        # A few more photos make a test no better.
        count = min(coming, rest) if coming >= min(rest, done // 10) else 0
    return done


def measured_logits(search: State, answer: Answer, tested: Split) -> np.ndarray:
    """Returns an answer's logits of photos; those of the first show how fast they come.

    By then a backbone is converted for the runtime that is the fastest.
    """
    begun = search.budget.clock()
    logits = answer.logits(tested)
    if "photo_scale" not in search.budget.facts:
        expected = time_plan.costs(search).photo * tested.num_examples
        scale = (search.budget.clock() - begun) / expected
        # Features of a run that was killed are known, and a conversion that is tried
        # here takes time once: both show nothing.
        search.budget.keep(photo_scale=min(max(scale, 0.5), 1.0))
    return logits


def report(
    search: State, answer: Answer, count: int, best: Backbone, of_probes: Answer
) -> dict:
    """Writes the model and its report, tested on so many photos; notes the time.

    `best` is the backbone whose learning curve it shows, and `of_probes` the answer
    without a training.
    """
    clock, task = search.budget.clock, search.task
    tested = limited(search.test, count)
    logits = search.judge.adjusted(measured_logits(search, answer, tested))
    after = clock()
    with search.devices.strategy.scope():
        networks = [one.make() for one in answer.members]
        weights = [one.weight for one in answer.members]
        task.answer = heads.combined(networks, weights, search.judge.shift)
    task.build(dataclasses.replace(search.source, test=tested))
    task.tried, task.reasons = search.tried, search.reasons
    task.best, task.stage = best.recipe, search.stage if search.trained else None
    task.held_out = search.judge.adjusted(answer.held_out)
    task.features, task.used = answer.features, best.photos
    task.curve, task.probe = best.curve, None
    if 0 < search.trained < 1:
        predicted = search.judge.adjusted(of_probes.logits(tested)).argmax(axis=1)
        task.probe = float(np.mean(predicted == tested.labels()))
    task.save(search.directory)
    # A finished run that is reported again took no longer.
    task.seconds = search.budget.facts.get("seconds", search.budget.used)
    results = task.report(
        search.directory, {"test": _judged(logits, tested.labels())}, search.command
    )
    search.budget.keep(report_seconds=clock() - after)
    return results


def _judged(logits, labels):
    """Returns what `train.run.task.Task.evaluate` returns, of logits."""
    answers = ranked(labels, softmax(logits))
    return {
        "loss": float(log_losses(logits, labels).mean()),
        "accuracy": float(np.mean(answers.predicted == labels)),
        "ranked": answers,
    }
