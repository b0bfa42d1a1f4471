"""The ways out of one run: a broker before the model, a proxy before allowed hosts."""
