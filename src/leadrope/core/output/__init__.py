"""Structured output: JSON Schemas, the types behind them, and values brought to what a schema asks for. Pure."""
