"""Support for pflow 0.16 files (`.pflow.md`): its values, its names for steps, and the outputs of its steps."""
