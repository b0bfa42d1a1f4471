"""Network access of a run: a broker for the model, a proxy for allowed hosts."""
