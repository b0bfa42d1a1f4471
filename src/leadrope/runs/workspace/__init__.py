"""The folder a run works in: creating, comparing, applying and undoing worktrees and checkpoints."""
