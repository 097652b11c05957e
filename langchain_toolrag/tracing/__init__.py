"""A selection in -> a run in LangChain's tracing, an OpenTelemetry span and metrics out."""
