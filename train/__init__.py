"""Training: recipes, data, the training step and one thin command a job."""

import keras_vit_start

# Check before any of it is imported: a user's file may have the name.
keras_vit_start.need_ours("zoo", "keras_vit")
