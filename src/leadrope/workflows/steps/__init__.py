"""The kinds of steps, one file each; `registry.KINDS` is the only list of them."""
