"""Model files of every library, read into arrays under the released names and back.

The names are the `released` ones and their dialects, or those of a `Library`, which
`reading` finds: `timm`, `transformers`, `keras_hub` or `original`, all in the table of
`names`.
"""
