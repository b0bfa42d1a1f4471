"""The kinds of steps, one file each; `registry.KINDS` is the one list that names them."""
