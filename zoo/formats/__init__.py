"""Files and names of other libraries, translated to the released names and back.

Two questions, one module each. What holds the arrays, which `opening` finds out: an
`.npz` (`zoo.archive`), a `safetensors` file or several of them (`shards`), or an `h5`
file. Whose names they have: `timm`, `transformers` or `keras_hub`, all in the one table
of `names`.
"""
