"""bfloat16 where the devices multiply in it: --precision=auto."""

import dataclasses

from train.recipes.recipe import AUTO


def settle(task, directory, devices):
    """Gives the recipe of a task its precision, where it is `"auto"`.

    A run that goes on has the one that it began with. What is chosen is printed.
    """
    if task.recipe.precision != AUTO:
        return
    begun = directory.read_config() if directory.is_begun() else {}
    if precision := begun.get("precision"):
        reason = "with which the run began"
    else:
        has_bfloat16, reason = devices.bfloat16()
        # Workers have one precision, whatever each of them computes.
        everywhere = all(devices.all_gather(int(has_bfloat16)))
        if has_bfloat16 and not everywhere:
            has_bfloat16, reason = False, "as other workers gain nothing by bfloat16"
        precision = "mixed_bfloat16" if has_bfloat16 else "float32"
    devices.print(f"precision {precision}, {reason}")
    task.recipe = dataclasses.replace(task.recipe, precision=precision)
