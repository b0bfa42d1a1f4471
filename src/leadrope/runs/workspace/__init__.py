"""Where a run works: its worktree or checkpoint, made, compared, brought home or taken back."""
