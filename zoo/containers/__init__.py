"""Files of arrays, whatever their names: opened, bounded and checked.

`opening` finds out which container a file is: `npz`, `safetensors`, several of them, or
`h5`, each an `OpenFile` of `arrays`.
"""
