"""What is known about programs: which ones start others, which write, and which only read, by their options."""
