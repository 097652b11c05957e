"""The filter of a LiteLLM proxy: `litellm --config litellm_config.yaml`, beside this file."""

from __future__ import annotations

from pathlib import Path

from langchain_toolrag.integrations.litellm import ToolRAGFilter

tool_filter = ToolRAGFilter(cache_dir=Path.home() / ".cache" / "toolrag-litellm")
