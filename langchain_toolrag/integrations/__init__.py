"""Selection in -> LangChain and LangGraph components out."""
