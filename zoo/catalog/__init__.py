"""The catalogue: released and published models, their cards and their names.

`cards` reads the tables of the released files; `augreg` has the other AugReg files,
`registry` what users publish. `locate` searches them, and decides what a name, path or
URL refers to.
"""
