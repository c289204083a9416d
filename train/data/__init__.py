"""The input side of training: data sets, preprocessing and batches."""
