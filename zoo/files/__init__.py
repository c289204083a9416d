"""Model files of every library, read into arrays under the released names and back.

Two questions. Which container holds the arrays (`opening` finds out): `npz`,
`safetensors`, several of them, or `h5`, each an `OpenFile` of `arrays`. Whose names
they have: the `released` ones and their dialects, or those of a `Library`, which
`reading` finds: `timm`, `transformers`, `keras_hub` or `original`, all in the table of
`names`.
"""
