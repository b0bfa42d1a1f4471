"""Policy decisions: a policy and a call in, a verdict with its reason out. Pure."""
