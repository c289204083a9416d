"""The catalogue: released and published models, their cards and their names.

`cards` reads the tables of the released files, `released` searches them;
`augreg` has the other AugReg files, `registry` what users publish. `locate` decides
what a name, path or URL refers to.
"""
