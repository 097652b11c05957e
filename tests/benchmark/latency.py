"""How fast a selection is: beside its model, beside others, at any size, from process start.

    python -m tests.benchmark.latency [--tools 1000 10000 100000] [--bench DIR...] [--cache DIR]
                                      [--queries 200] [--json FILE] [--plot FILE]

Everything is timed in one process on one thread, one request after another, each by all contenders
in random order, so that a busy machine slows all alike: trust ratios. A contender that has used up
its time sits out what is left of the requests. What is paid once for each process (imports, memory,
the first selection) is measured in new processes.

The catalogue is made up (see `catalogue`), after the tools of the `--bench` folders. Requests are
always embedded by the real model. The smallest catalogue is too, up to 1,000 tools, and kept in
`--cache`; the tools of larger ones, and of the rivals at every size, have made-up vectors with the
spread of real ones, since to embed 100,000 tools takes 20 minutes.

The floor of an embedding is what its multiplications take: 21.2 MFLOP a token, at the speed of the
fastest float32 product of MiniLM's shapes that numpy does on one thread in the same run.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from langchain_toolrag import ToolRAG
from langchain_toolrag.index.embedding import MiniLMEmbeddings
from langchain_toolrag.index.encoder import load_network
from langchain_toolrag.index.weights import DEFAULT_MODEL
from tests.benchmark.catalogue import (
    ONE_PART,
    SEVERAL_PARTS,
    MadeUpToolVectors,
    made_up_tools,
    requests_like,
    tools_of,
)
from tests.benchmark.rivals import rivals
from tests.benchmark.scoring import resident, timed
