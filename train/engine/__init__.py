"""The training step and loop: optimizers, losses, devices, checkpoints, callbacks."""
