"""Model files of every library, read into arrays under the released names and back.

Two questions, one module each. Which container holds the arrays (`opening` finds out):
`.npz` (`archive`), `safetensors`, several of them, or `h5`. Whose names
they have: the released ones and their dialects (`dialects`), `timm`, `transformers` or
`keras_hub`, all in the table of `names`.
"""
