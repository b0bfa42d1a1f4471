"""What is known of programs: which start others, which write, which only read, by their options."""
