"""Files of pflow 0.16 (`.pflow.md`): its values, its words for steps, and what its steps give."""
